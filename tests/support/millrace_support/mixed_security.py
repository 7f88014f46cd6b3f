"""What secures clusters of Apache Kafka and Millrace: the same properties for both, and their users.

    listener     SASL_SSL for clients and for brokers, who log in by SCRAM-SHA-512, and again every few seconds
    ZooKeeper    a password; nodes belong to the brokers
    authorizer   that of Apache Kafka 3.9

user        may
broker      everything
writer      write the topics and the transactions of a load
reader      read the topics in the group of a load
stranger    nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace.security.acls import AclBinding, ResourceType
from millrace.security.client_security import ClientSecurity
from millrace.zk.security import ZooKeeperSecurity
from millrace_ops.cli.acls import CONSUMER, PRODUCER, Who, new_bindings
from millrace_ops.users.stored_users import in_zookeeper
from millrace_support.certificates import Authority
from millrace_support.mixed_clusters import Securing
from millrace_support.rolling_load import GROUP, TRANSACTIONAL_ID, Users
from millrace_support.sasl_brokers import client_jaas
from millrace_support.zookeeper_security import SecuredZooKeeper

MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 4096
SESSION_MS = 4000
BROKER, WRITER, READER, STRANGER = USERS = ("broker", "writer", "reader", "stranger")


class MixedSecurity:
    """Certificates, passwords and properties of brokers and users under one ZooKeeper.

    Attributes:
        zookeeper: The properties of clients of ZooKeeper.
    """

    def __init__(self, folder: Path, server: SecuredZooKeeper) -> None:
        self._files = Authority().issue().write(folder)
        self._login_flag = f"-Djava.security.auth.login.config={server.folder}/client.jaas"
        self.zookeeper = {
            **server.login(),  # for Millrace; Apache Kafka reads it from a flag of its JVM
            "zookeeper.set.acl": "true",
        }

    def securing(self) -> Securing:
        """Returns how the brokers are secured."""
        login = {f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": _jaas(BROKER)}
        stores = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._files.key_store_pem),
            **self._trust(),
        }
        properties = {
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "connections.max.reauth.ms": str(SESSION_MS),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{BROKER}",
        }
        return Securing({**properties, **login, **stores, **self.zookeeper}, (self._login_flag,), self.client(BROKER))

    def make_users(self, zookeeper: str) -> None:
        """Makes all users of a cluster, before it has a broker."""
        with in_zookeeper(zookeeper, ZooKeeperSecurity.from_properties(self.zookeeper)) as users:
            for user in USERS:
                users.set_password(user, (MECHANISM,), _password(user), ITERATIONS)

    def client(self, user: str) -> ClientSecurity:
        """Returns how our own clients log in."""
        login = {"sasl.mechanism": MECHANISM, "sasl.jaas.config": _jaas(user)}
        return ClientSecurity.from_properties({"security.protocol": "SASL_SSL", **login, **self._trust()})

    def users(self) -> Users:
        """Returns how the clients of a load log in."""
        return Users(writer=self._settings(WRITER), reader=self._settings(READER))

    def _settings(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": _password(user),
            "ssl.ca.location": str(self._files.trust_store_pem),
        }

    def _trust(self) -> Mapping[str, str]:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._files.trust_store_pem)}


def rights(topics: Sequence[str]) -> list[AclBinding]:
    """Returns what the writer and the reader of a load need."""
    written = {ResourceType.TOPIC: topics, ResourceType.TRANSACTIONAL_ID: [TRANSACTIONAL_ID]}
    read = {ResourceType.TOPIC: topics, ResourceType.GROUP: [GROUP]}
    writing = new_bindings(written, PRODUCER, Who(allowed=[f"User:{WRITER}"]), prefixed=False)
    reading = new_bindings(read, CONSUMER, Who(allowed=[f"User:{READER}"]), prefixed=False)
    return sorted(writing + reading)


def _password(user: str) -> str:
    return f"{user}'s secret"


def _jaas(user: str) -> str:
    return client_jaas(MECHANISM, user, _password(user))
