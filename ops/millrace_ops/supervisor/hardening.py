"""What a hardened platform has beside a plain one (`--secure`): TLS, users and rights on all that its brokers serve.

    clients and brokers   SASL_SSL alone: TLS, and a login by SCRAM-SHA-512
    rights                the standard authorizer, which lets `admin` do everything and others what their lists say
    admin endpoints       TLS and a token
    ZooKeeper             the platform's own, on loopback without TLS: a login (SASL DIGEST-MD5) for brokers, to whom
                          the nodes belong; one of the operator's is reached as the operator's properties say

The secrets are in files of `SecretsFolder`: no command line, log or metadata has one.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping

from millrace.errors import SetupError
from millrace.security.client_config import read_client_security
from millrace.zk.security import ZooKeeperSecurity
from millrace_ops.supervisor.first_users import ADMIN, BROKERS, PLATFORM, FirstUser, make_users
from millrace_ops.supervisor.secrets_folder import MECHANISM, SecretsFolder

PROTOCOL = "SASL_SSL"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
ZOOKEEPER_SETTINGS = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"


class Hardening:
    """The hardening of one start of a platform.

    Args:
        secrets: The folder of secrets.
        hosts: The hosts by which clients reach brokers and admin endpoints, beside this machine's names.
        users: Users beside those that every platform has.
        given: The properties that the operator gives the brokers.
        has_own_zookeeper: Whether the platform starts its ZooKeeper itself.

    Attributes:
        client_config: The path of the client properties by which Dagster and the loads log in.
        broker_properties: The properties of the brokers, among them secrets.
        admin_token: The token of the admin endpoints.
        context: The TLS context that verifies the certificates of the admin endpoints.
    """

    def __init__(
        self,
        secrets: SecretsFolder,
        hosts: Iterable[str],
        users: Iterable[FirstUser],
        given: Mapping[str, str],
        *,
        has_own_zookeeper: bool,
    ) -> None:
        self._secrets = secrets
        self._users = (ADMIN, BROKERS, PLATFORM, *users)
        self._given = given
        self._has_own_zookeeper = has_own_zookeeper
        key_store = secrets.key_store((*LOCAL_HOSTS, socket.gethostname(), *hosts))
        self.broker_properties = self._properties(key_store)
        self.admin_token = secrets.admin_token()
        self.client_config = secrets.client_config(PLATFORM.name)
        self.context: ssl.SSLContext | None = read_client_security(self.client_config, environment={}).context

    @property
    def zookeeper_settings(self) -> str:
        """Further lines of the configuration of the platform's own ZooKeeper."""
        return ZOOKEEPER_SETTINGS

    @property
    def zookeeper_flags(self) -> tuple[str, ...]:
        """Further flags of its JVM."""
        return (f"-Djava.security.auth.login.config={self._secrets.zookeeper_jaas()}",)

    def make_users(self, zookeeper: str) -> None:
        """Makes the users that ZooKeeper does not know yet, before a broker starts. Raises ZooKeeperError."""
        security = ZooKeeperSecurity.from_properties({**self._given, **self.broker_properties})
        make_users(zookeeper, security, self._users, self._secrets.password)

    def _properties(self, key_store: str) -> dict[str, str]:
        own = {
            "security.inter.broker.protocol": PROTOCOL,
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"listener.name.{PROTOCOL.lower()}.{MECHANISM.lower()}.sasl.jaas.config": self._secrets.jaas(BROKERS.name),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": key_store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._secrets.trusted,
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{ADMIN.name}",
            "admin.security.protocol": "SSL",
        }
        if self._has_own_zookeeper:
            own["java.security.auth.login.config"] = self._secrets.zookeeper_jaas()
            own["zookeeper.set.acl"] = "true"
        for name in own:
            if name in self._given:
                raise SetupError(f"{name}={self._given[name]}: --secure sets this property; leave it out")
        return own
