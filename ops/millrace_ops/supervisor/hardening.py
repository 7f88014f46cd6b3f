"""What a hardened platform has beside a plain one (`--secure`): TLS, users and rights on all that its brokers serve.

    clients and brokers   SASL_SSL alone: TLS, and a login by SCRAM-SHA-512
    rights                the standard authorizer, which lets `admin` do everything and others what their lists say
    admin endpoints       TLS and a token
    ZooKeeper             the platform's own, on loopback without TLS: a login (SASL DIGEST-MD5) for brokers, to whom
                          the nodes belong; one of the operator's is reached as the operator's properties say

The secrets are in files of `SecretsFolder`: no command line, log or metadata has one. It begins with three users:

    admin       may do everything (super.users)
    brokers     the brokers among themselves
    platform    Dagster and the loads: read all topics and their configurations, create topics, commit offsets

A user that ZooKeeper knows is left as it is, and so are its rights: what an administrator has changed stays. The rights
are written before the password, so a start that was cut short between them does both again. Before the first users,
nodes that an open platform has left are given to the brokers.
"""

from __future__ import annotations

import os
import secrets
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from io import StringIO
from typing import NamedTuple

import javaproperties

from millrace.client.consumer.group_offsets import open_session
from millrace.clock import Clock
from millrace.errors import SetupError
from millrace.fs import FileSystem, write_file_durably
from millrace.security import protocols
from millrace.security.acls import (
    CLUSTER_NAME,
    EVERY_HOST,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.security.authority import Authority
from millrace.security.client_config import properties_of_file, read_client_security
from millrace.security.protocols import JAAS
from millrace.security.sasl.jaas import parse_jaas
from millrace.security.sasl.names import SCRAM_SHA_512
from millrace.zk.security import DIGEST_MODULE, ZooKeeperSecurity
from millrace_broker.cluster.zookeeper_nodes import ZooKeeperAcls
from millrace_ops.users.stored_users import in_zookeeper
from millrace_ops.zookeeper_acls import migrate

MECHANISM = SCRAM_SHA_512
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
ZOOKEEPER_USER = "kafka"
PASSWORD_BYTES = 24


KEY_STORE = "brokers.pem"


def is_hardened(path: str, fs: FileSystem) -> bool:
    """Returns whether a folder has the secrets of a hardened platform."""
    return fs.exists(os.path.join(path, KEY_STORE))


class SecretsFolder:
    """The secrets that a platform makes at its first start and keeps, readable by their owner alone.

    DIR/secrets/ca.pem              the authority's certificate, which clients trust
    DIR/secrets/ca.key.pem          its key, which signs the brokers' certificate
    DIR/secrets/brokers.pem         the brokers' key and certificate, new at each start, for the hosts of that start
    DIR/secrets/NAME.properties     how a client is the user NAME: `--client-config` and Kafka's own tools take it
    DIR/secrets/zookeeper.jaas      the brokers' identity at the platform's own ZooKeeper, for both sides
    DIR/secrets/admin.token         the token of the admin endpoints

    Each method makes what it returns if it is missing. A file appears whole or not at all, so a start that was cut
    short is simply done again.
    """

    def __init__(self, path: str, fs: FileSystem, clock: Clock) -> None:
        self.path = path
        self._fs = fs
        self._clock = clock
        os.makedirs(path, mode=0o700, exist_ok=True)
        os.chmod(path, 0o700)  # it may be there for a token already

    @property
    def trusted(self) -> str:
        """Returns the path of the authority's certificate."""
        return self._file("ca.pem")

    def key_store(self, hosts: Iterable[str]) -> str:
        """Writes a new certificate of the brokers for these hosts, and returns the path of its key store."""
        made = self._kept("ca.key.pem", lambda: Authority.new(self._clock.now_ms()).key_store)
        authority = Authority.from_pem(made)
        self._write("ca.pem", authority.trusted)
        return self._write(KEY_STORE, authority.issue(hosts, self._clock.now_ms()))

    def client_config(self, user: str) -> str:
        """Returns the path of a user's client properties."""
        name = f"{user}.properties"
        self._kept(name, lambda: _dumped(self._login(user)))
        return self._file(name)

    def password(self, user: str) -> str:
        """Returns a user's password from its properties; raises InvalidConfigError or SetupError without one."""
        path = self.client_config(user)
        login = parse_jaas(properties_of_file(path).get(JAAS, ""), JAAS)
        if login.options.get("username") != user or not login.options.get("password"):
            raise SetupError(f"{path}: {JAAS} has no username={user} with a password")
        return login.options["password"]

    def jaas(self, user: str) -> str:
        """Returns the value of `sasl.jaas.config` with which a user logs in."""
        return _scram_login(user, self.password(user))

    def zookeeper_jaas(self) -> str:
        """Returns the path of the JAAS file of ZooKeeper and its clients."""
        self._kept("zookeeper.jaas", lambda: _digest_logins(_new_secret()))
        return self._file("zookeeper.jaas")

    def admin_token(self) -> str:
        """Returns the token of the admin endpoints."""
        return self._kept("admin.token", _new_secret).strip()

    def _login(self, user: str) -> Mapping[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            protocols.MECHANISM: MECHANISM,
            JAAS: _scram_login(user, _new_secret()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
        }

    def _kept(self, name: str, new: Callable[[], str]) -> str:
        path = self._file(name)
        if not self._fs.exists(path):
            self._write(name, new())
        with open(path, encoding="utf-8") as file:
            return file.read()

    def _write(self, name: str, text: str) -> str:
        path = self._file(name)
        write_file_durably(self._fs, path, text.encode(), is_secret=True)
        return path

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)


def _new_secret() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _scram_login(user: str, password: str) -> str:
    return f'{SCRAM_MODULE} required username="{user}" password="{password}";'


def _digest_logins(password: str) -> str:
    return (
        f'Server {{\n    {DIGEST_MODULE} required\n    user_{ZOOKEEPER_USER}="{password}";\n}};\n'
        f'Client {{\n    {DIGEST_MODULE} required\n    username="{ZOOKEEPER_USER}"\n    password="{password}";\n}};\n'
    )


def _dumped(properties: Mapping[str, str]) -> str:
    text = StringIO()
    javaproperties.dump(properties, text, timestamp=False)
    return text.getvalue()


ITERATIONS = 4096  # a random password of 24 bytes is not guessed, however cheap a guess is


class Right(NamedTuple):
    """An operation on the named resource of a type, or, if the name is `*`, on all resources of that type."""

    operation: AclOperation
    resource: ResourceType
    name: str = WILDCARD


class FirstUser(NamedTuple):
    """A user to create, and the rights that it gets."""

    name: str
    rights: tuple[Right, ...] = ()


ADMIN = FirstUser("admin")
BROKERS = FirstUser("brokers", (Right(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME),))
PLATFORM = FirstUser(
    "platform",
    (
        Right(AclOperation.READ, ResourceType.TOPIC),
        Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
        Right(AclOperation.CREATE, ResourceType.TOPIC),
        Right(AclOperation.READ, ResourceType.GROUP),
    ),
)


def producer_of(topic: str) -> FirstUser:
    """Returns the user `producer`, with the rights to create one topic and to write to it."""
    operations = (AclOperation.WRITE, AclOperation.CREATE)
    return FirstUser("producer", tuple(Right(one, ResourceType.TOPIC, topic) for one in operations))


def make_users(
    zookeeper: str, security: ZooKeeperSecurity, users: Iterable[FirstUser], password: Callable[[str], str]
) -> None:
    """Creates users that ZooKeeper lacks, with their rights; `password` returns a user's. Raises ZooKeeperError."""
    with in_zookeeper(zookeeper, security) as stored:
        known = stored.describe()
        missing = [one for one in users if one.name not in known]
        if missing:
            _prepare(zookeeper, security, missing)
        for one in missing:
            stored.set_password(one.name, [MECHANISM], password(one.name), ITERATIONS)


def _prepare(zookeeper: str, security: ZooKeeperSecurity, users: Iterable[FirstUser]) -> None:
    session = open_session(zookeeper, security=security)
    try:
        if security.sets_acls:
            migrate(session, is_secure=True, dry_run=False)
        acls = ZooKeeperAcls(session)
        acls.make_folders()
        for user in users:
            for right in user.rights:
                entry = Acl(f"User:{user.name}", EVERY_HOST, right.operation, PermissionType.ALLOW)
                pattern = ResourcePattern(right.resource, right.name, PatternType.LITERAL)
                acls.change(pattern, frozenset({entry}).union)
    finally:
        session.close()


PROTOCOL = "SASL_SSL"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
ZOOKEEPER_SETTINGS = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"


class Hardening:
    """The security settings with which one start of a hardened platform runs.

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
        zookeeper_settings: Further lines of the configuration of the platform's own ZooKeeper.
    """

    zookeeper_settings = ZOOKEEPER_SETTINGS

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
    def zookeeper_flags(self) -> tuple[str, ...]:
        """Returns further flags of the JVM of the platform's own ZooKeeper."""
        return (f"-Djava.security.auth.login.config={self._secrets.zookeeper_jaas()}",)

    def make_users(self, zookeeper: str) -> None:
        """Creates the users that ZooKeeper lacks; to be called before a broker starts. Raises ZooKeeperError."""
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
