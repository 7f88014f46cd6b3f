"""Apache Kafka with listeners as the clouds have them, for clients that are to reach it.

    listener     security protocol    who gets in
    PASSWORDS    SASL_SSL             alice, by SCRAM-SHA-512 and by PLAIN
    MUTUAL       SSL                  who has a certificate of the authority
    SHORT        SASL_PLAINTEXT       alice, who has to authenticate again every eight seconds
    EXPIRED      SSL                  the broker's certificate has expired
    ELSEWHERE    SSL                  the broker's certificate is made for another host

The properties of a client come as the text of a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from millrace_benchmarks.kafka_broker import Kafka, KafkaBroker
from millrace_support.certificates import Authority, Files

USER, PASSWORD = "alice", "correct-horse-7"
SHORT_SESSION_MS = 8_000
KAFKA_SECURITY = "org.apache.kafka.common.security"
PLAIN_MODULE = f"{KAFKA_SECURITY}.plain.PlainLoginModule"
SCRAM_MODULE = f"{KAFKA_SECURITY}.scram.ScramLoginModule"
LISTENERS = {
    "PASSWORDS": "SASL_SSL",
    "MUTUAL": "SSL",
    "SHORT": "SASL_PLAINTEXT",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}
MODULES = {"PLAIN": PLAIN_MODULE, "SCRAM-SHA-512": SCRAM_MODULE}


class SecuredKafka:
    """A running broker, and the files of its clients; a context manager that stops it."""

    def __init__(self, kafka: Kafka, folder: Path, zookeeper: str | None = None) -> None:
        self._folder = folder
        self.authority = Authority()
        self.client = self.authority.issue("CN=alice", names=()).write(folder, "client")
        self.broker = KafkaBroker(
            kafka,
            folder / "data",
            zookeeper=zookeeper,
            properties=self._properties(),
            listeners=LISTENERS,
            users={USER: PASSWORD},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()

    def address(self, listener: str) -> str:
        """Returns `HOST:PORT` of a listener."""
        return self.broker.addresses[listener]

    def passwords(self, mechanism: str, password: str = PASSWORD, protocol: str = "SASL_SSL") -> dict[str, str]:
        """Returns the properties of a client with a password."""
        return {
            **(self.trusting() if protocol == "SASL_SSL" else {}),
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{MODULES[mechanism]} required username="{USER}" password="{password}";',
        }

    def trusting(self) -> dict[str, str]:
        """Returns the properties of a client without a certificate."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.client.trust_store_pem),
        }

    def mutual(self) -> dict[str, str]:
        """Returns the properties of a client with a certificate."""
        return {
            **self.trusting(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.client.key_store_pem),
        }

    def file(self, properties: dict[str, str]) -> Path:
        """Returns a new file with these properties, which its owner alone may read."""
        path = self._folder / f"client-{len(list(self._folder.glob('client-*')))}.properties"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return path

    def _properties(self) -> dict[str, str]:
        server = self.authority.issue().write(self._folder, "server")
        expired = self.authority.issue(expired=True).write(self._folder, "expired")
        elsewhere = self.authority.issue(names=("elsewhere.example",)).write(self._folder, "elsewhere")
        return {
            **_stores("", server),
            **_stores("listener.name.expired.", expired),
            **_stores("listener.name.elsewhere.", elsewhere),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.passwords.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.passwords.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
            "listener.name.passwords.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.short.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            "listener.name.short.scram-sha-512.connections.max.reauth.ms": str(SHORT_SESSION_MS),
        }


def _stores(prefix: str, files: Files) -> dict[str, str]:
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.location": str(files.key_store_pem),
        f"{prefix}ssl.truststore.type": "PEM",
        f"{prefix}ssl.truststore.location": str(files.trust_store_pem),
    }
