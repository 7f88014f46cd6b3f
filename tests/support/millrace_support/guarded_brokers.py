"""Brokers whose authorizer lets a client do what it was given alone: Millrace, Apache Kafka 3.9 and 4.1.

listener    security protocol    who is User:mirror
(plain)     PLAINTEXT            nobody: whoever comes here may do everything
SCRAM       SASL_SSL             who has the password, by SCRAM-SHA-512
PLAIN       SASL_PLAINTEXT       who has the password, by PLAIN
MUTUAL      SSL                  who has a certificate of the authority for CN=mirror
SHORT       SASL_PLAINTEXT       as SCRAM, who has to authenticate again every few seconds
TOKEN       SASL_PLAINTEXT       who has a token of the token server (Millrace alone)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from millrace.addresses import LOOPBACK
from millrace.client import Cluster, Users
from millrace.client.access import create_acls, delete_acls
from millrace.fs import OsFileSystem
from millrace.ports import free_port
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import Kafka, KafkaBroker, find_kafka
from millrace_ops.users.stored_users import in_folder
from millrace_support.await_brokers import await_coordinators
from millrace_support.certificates import Authority, Files
from millrace_support.token_server import AUDIENCE, ISSUER, TokenServer

USER, PASSWORD = "mirror", "correct-horse-7"
PRINCIPAL = f"User:{USER}"
SCRAM = "SCRAM-SHA-512"
SESSION_MS = 3_000
PROTOCOLS = {
    "SCRAM": "SASL_SSL",
    "PLAIN": "SASL_PLAINTEXT",
    "MUTUAL": "SSL",
    "SHORT": "SASL_PLAINTEXT",
    "TOKEN": "SASL_PLAINTEXT",
}
MECHANISMS = {"SCRAM": SCRAM, "PLAIN": "PLAIN", "SHORT": SCRAM, "TOKEN": "OAUTHBEARER"}
AUTHORIZERS = {
    "millrace": "kafka.security.authorizer.AclAuthorizer",
    "3.9": "kafka.security.authorizer.AclAuthorizer",
    "4.1": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Right:
    """A permission, as `OPERATION KIND NAME`; a name that ends with `*` is a prefix."""

    def __init__(self, text: str) -> None:
        self.text = text
        operation, kind, name = text.split()
        is_prefix = name.endswith("*") and name != "*"
        pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
        self.binding = AclBinding(
            ResourcePattern(ResourceType[kind], name[:-1] if is_prefix else name, pattern),
            Acl(PRINCIPAL, "*", AclOperation[operation], PermissionType.ALLOW),
        )


class GuardedBroker:
    """A running broker, and how its clients log in; a context manager that stops it.

    Attributes:
        bootstrap: `HOST:PORT` of the plain listener.
        zookeeper: Where its cluster is written down, if it has a ZooKeeper.
        authority: That of the certificates.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        tokens: TokenServer,
        *,
        find_peer: Callable[[str], Kafka] = find_kafka,
        zookeeper: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.zookeeper = zookeeper
        self._folder = folder
        self._tokens = tokens
        self._stack = ExitStack()
        self.authority = Authority()
        self._server = self.authority.issue().write(folder, "server")
        self._client = self.authority.issue(f"CN={USER}", names=()).write(folder, "client")
        told = self._properties() | dict(properties or {})
        self.broker: BrokerProcess | KafkaBroker
        if kind == "millrace":
            self.broker = self._millrace(told)
        else:
            names = {name: one for name, one in PROTOCOLS.items() if name != "TOKEN"}
            self.broker = KafkaBroker(
                find_peer(kind), folder / "data", zookeeper=zookeeper if kind == "3.9" else None, properties=told,
                listeners=names, users={USER: PASSWORD},
            )  # fmt: skip
            self._stack.callback(self.broker.stop)
            self.addresses = self.broker.addresses
            await_coordinators(self.broker)
        self.bootstrap = self.broker.bootstrap
        if kind == "millrace" and zookeeper:
            with Cluster(self.bootstrap) as cluster:
                Users(cluster).set_password(USER, [SCRAM], PASSWORD, 4096)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def properties(self, listener: str, password: str = PASSWORD) -> dict[str, str]:
        """Returns the properties of the mirror's client for a listener."""
        protocol = PROTOCOLS[listener]
        told = {"security.protocol": protocol}
        if "SSL" in protocol:
            told |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._client.trust_store_pem)}
        if listener == "MUTUAL":
            told |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._client.key_store_pem)}
            return told
        mechanism = MECHANISMS[listener]
        login = f'username="{USER}" password="{password}"'
        if listener == "TOKEN":
            told["sasl.oauthbearer.token.endpoint.url"] = self._tokens.token_url
            login = f'clientId="{USER}" clientSecret="{password}"'
        module = LOGIN_MODULES[mechanism]
        return told | {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {login};"}

    def permit(self, *rights: str) -> None:
        """Lets the mirror do this, besides what it may."""
        with Cluster(self.bootstrap) as cluster:
            create_acls(cluster, [Right(one).binding for one in rights])

    def forbid(self, *rights: str) -> None:
        """Takes rights away."""
        with Cluster(self.bootstrap) as cluster:
            delete_acls(cluster, [_filter(Right(one).binding) for one in rights])

    def _millrace(self, properties: Mapping[str, str]) -> BrokerProcess:
        plain = f"{LOOPBACK}:{free_port()}"
        self.addresses = {name: f"{LOOPBACK}:{free_port()}" for name in PROTOCOLS}
        if not self.zookeeper:
            with in_folder(str(self._folder / "data"), OsFileSystem()) as users:
                users.set_password(USER, (SCRAM,), PASSWORD, 4096)
        listeners = {"PLAINTEXT": plain, **self.addresses}
        protocols = {"PLAINTEXT": "PLAINTEXT", **PROTOCOLS}
        return self._stack.enter_context(
            BrokerProcess(
                self._folder / "data",
                zookeeper=self.zookeeper or None,
                properties={
                    "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
                    "listener.security.protocol.map": ",".join(":".join(one) for one in protocols.items()),
                    "inter.broker.listener.name": "PLAINTEXT",
                    "sasl.oauthbearer.jwks.endpoint.url": self._tokens.keys_url,
                    "sasl.oauthbearer.expected.audience": AUDIENCE,
                    "sasl.oauthbearer.expected.issuer": ISSUER,
                    "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
                    "listener.name.token.oauthbearer.sasl.jaas.config": f"{LOGIN_MODULES['OAUTHBEARER']} required;",
                    **properties,
                },
            )
        )

    def _properties(self) -> dict[str, str]:
        plain = f'{LOGIN_MODULES["PLAIN"]} required user_{USER}="{PASSWORD}";'
        scram = f"{LOGIN_MODULES[SCRAM]} required;"
        return {
            **QUICK,
            "authorizer.class.name": AUTHORIZERS[self.kind],
            "super.users": "User:ANONYMOUS",
            **_stores(self._server),
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.scram.sasl.enabled.mechanisms": SCRAM,
            "listener.name.scram.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.short.sasl.enabled.mechanisms": SCRAM,
            "listener.name.short.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.plain.plain.sasl.jaas.config": plain,
        }


def _filter(binding: AclBinding) -> AclFilter:
    pattern, acl = binding
    return AclFilter(pattern.resource_type, pattern.name, pattern.pattern_type, acl.principal, "*", acl.operation)


def _stores(files: Files) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.key_store_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.trust_store_pem),
    }
