"""A broker of Millrace with the listeners that secured clients meet, all by TLS.

listener     security protocol    who gets in
PASSWORDS    SASL_SSL             alice, by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, or a token of the token server
SHORT        SASL_SSL             the same, who have to authenticate again every six seconds
MUTUAL       SSL                  who has a certificate of the authority
EXPIRED      SSL                  the broker's certificate has expired
ELSEWHERE    SSL                  the broker's certificate is made for another host
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from millrace.addresses import LOOPBACK
from millrace.fs import OsFileSystem
from millrace.ports import free_port
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace.testing.broker import BrokerProcess
from millrace_ops.users.stored_users import in_folder
from millrace_support.certificates import Authority, Files
from millrace_support.sasl_brokers import SCRAM
from millrace_support.secured_clients.task import PASSWORD, USER, Login
from millrace_support.token_server import AUDIENCE, ISSUER, TokenServer

SESSION_MS = 6_000
PROTOCOLS = {
    "PASSWORDS": "SASL_SSL",
    "SHORT": "SASL_SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")


class SecuredBroker:
    """A running broker, and how its clients log in; a context manager that stops it."""

    def __init__(self, folder: Path, tokens: TokenServer, properties: Mapping[str, str] | None = None) -> None:
        self._tokens = tokens
        self.addresses = {name: f"{LOOPBACK}:{free_port()}" for name in PROTOCOLS}
        authority = Authority()
        self._files = {
            "server": authority.issue().write(folder, "server"),
            "expired": authority.issue(expired=True).write(folder, "expired"),
            "elsewhere": authority.issue(names=("elsewhere.example",)).write(folder, "elsewhere"),
            "client": authority.issue(f"CN={USER}", names=()).write(folder, "client"),
        }
        with in_folder(str(folder / "data"), OsFileSystem()) as users:
            users.set_password(USER, SCRAM, PASSWORD, 4096)
        self.process = BrokerProcess(folder / "data", properties={**self._properties(), **(properties or {})})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.close()

    def login(self, mechanism: str, listener: str = "PASSWORDS", password: str = PASSWORD) -> Login:
        """Returns how alice logs in with a password, or by a token for who has that password."""
        is_right = password == PASSWORD
        return Login(
            bootstrap=self.addresses[listener],
            authority=str(self._files["client"].trust_store_pem),
            mechanism=mechanism,
            password=password,
            token=self._tokens.token() if is_right else self._tokens.token(aud="others"),
            token_url=self._tokens.token_url,
        )

    def with_certificate(self, listener: str = "MUTUAL") -> Login:
        """Returns how alice shows a certificate."""
        files = self._files["client"]
        return Login(
            bootstrap=self.addresses[listener],
            authority=str(files.trust_store_pem),
            certificate=str(files.certificate),
            key=str(files.key),
            key_store=str(files.key_store_pem),
        )

    def _properties(self) -> dict[str, str]:
        listeners = ",".join(f"{name}://{address}" for name, address in self.addresses.items())
        return {
            "listeners": listeners,
            "listener.security.protocol.map": ",".join(":".join(one) for one in PROTOCOLS.items()),
            "inter.broker.listener.name": "MUTUAL",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": self._tokens.keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            **_logins("passwords"),
            **_logins("short"),
            **_stores("", self._files["server"]),
            **_stores("listener.name.expired.", self._files["expired"]),
            **_stores("listener.name.elsewhere.", self._files["elsewhere"]),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
        }


def _logins(listener: str) -> dict[str, str]:
    plain = f'{LOGIN_MODULES["PLAIN"]} required user_{USER}="{PASSWORD}";'
    return {
        f"listener.name.{listener}.plain.sasl.jaas.config": plain,
        f"listener.name.{listener}.oauthbearer.sasl.jaas.config": f"{LOGIN_MODULES['OAUTHBEARER']} required;",
    }


def _stores(prefix: str, files: Files) -> dict[str, str]:
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.location": str(files.key_store_pem),
        f"{prefix}ssl.truststore.type": "PEM",
        f"{prefix}ssl.truststore.location": str(files.trust_store_pem),
    }
