"""Apache Kafka's client authenticates here, and users that either side makes in one ZooKeeper log in on the other."""

import json

import confluent_kafka as confluent
import pytest

from millrace.addresses import LOOPBACK
from millrace.client import Cluster, Users
from millrace.ports import free_port
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace.security.sasl.scram import (
    SCRAM_HASHES,
    ScramClient,
    credential_of,
    credential_text,
    parse_credential,
    salted_password,
)
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_broker.security.authentication.authentication import new_mechanism
from millrace_broker.security.authentication.credentials import Credentials, user_entity
from millrace_broker.security.authentication.listener_security import ListenerSecurity
from millrace_ops.users.stored_users import in_zookeeper
from millrace_support.kafka_tools import PATIENT_PRODUCER, KafkaTools
from millrace_support.sasl_brokers import MECHANISMS, SCRAM, client_jaas, sasl_broker
from millrace_support.waiting import awaited
from millrace_support.zookeeper_sessions import started

LINES = [f"line {number}" for number in range(50)]
NAME, PASSWORD = "alice=+*/ü", "pencil"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with sasl_broker(tmp_path_factory.mktemp("sasl")) as process:
        yield process


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_client_produces_and_consumes(broker, kafka, tmp_path, mechanism):
    settings = tmp_path / "client.properties"
    jaas = client_jaas(mechanism).replace("\\", "\\\\")
    settings.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n", encoding="utf-8"
    )
    where = ("--bootstrap-server", broker.bootstrap, "--topic", f"java-{mechanism}")
    stdin = "".join(f"{line}\n" for line in LINES).encode()
    kafka.run("kafka.tools.ConsoleProducer", *where, *PATIENT_PRODUCER, "--producer.config", str(settings), stdin=stdin)
    found = kafka.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--consumer.config", str(settings), "--partition",
        "0", "--offset", "earliest", "--max-messages", str(len(LINES)), "--timeout-ms", "60000",
    )  # fmt: skip
    assert [line for line in found.splitlines() if line.startswith("line ")] == LINES


class Beside:
    """A broker of each side on one ZooKeeper; Kafka's has another listener, on which clients authenticate."""

    def __init__(self, kafka, place, zookeeper):
        self.zookeeper = zookeeper
        plain, self.secured = (f"{LOOPBACK}:{free_port()}" for _ in range(2))
        login = f"{LOGIN_MODULES[SCRAM[0]]} required;"
        listeners = f"PLAINTEXT://{plain},EXTERNAL://{self.secured}"
        properties = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(SCRAM),
            **{f"listener.name.external.{one.lower()}.sasl.jaas.config": login for one in SCRAM},
        }
        self.theirs = KafkaBroker(
            kafka, place / "theirs", zookeeper=zookeeper, listen=plain, properties=properties, broker_id=1
        )
        self.ours = BrokerProcess(place / "ours", zookeeper=zookeeper, broker_id=2)
        self.tools = KafkaTools(kafka, plain)

    def close(self):
        self.ours.close()
        self.theirs.stop()

    def node(self, path):
        """The node of a user."""
        with started(self.zookeeper) as zk:
            return json.loads(zk.get(path))

    def logs_in(self, mechanism, user, password, timeout_s=60):
        """Returns whether Kafka authenticates a user, who tries again until the time is over."""
        client = confluent.Producer({
            "bootstrap.servers": self.secured, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
            "sasl.username": user, "sasl.password": password, "log_level": 0,
        })  # fmt: skip
        try:
            client.list_topics(timeout=timeout_s)
        except confluent.KafkaException:
            return False
        return True


@pytest.fixture(scope="module")
def beside(kafka, tmp_path_factory, zookeeper):
    place = tmp_path_factory.mktemp("beside")
    brokers = Beside(kafka, place, f"{zookeeper.address}/{place.name}")
    yield brokers
    brokers.close()


def proves(mechanism, config, user, password):
    """Whether our side authenticates a user with these properties."""
    configs = {user_entity(user): config}
    credentials = Credentials(lambda: configs)
    server = new_mechanism(mechanism, ListenerSecurity(listener="X", mechanisms=SCRAM), credentials, None)
    client = ScramClient(mechanism, user, password)
    message = client.initial_response()
    while not client.is_complete:
        message = client.respond(server.respond(message))
    return server.authenticated.user == user


NODE = "/config/users/alice%3D%2B%2A%2F%C3%BC"


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_user_that_our_broker_makes_logs_in_at_kafka(beside, mechanism):
    with Cluster(beside.ours.bootstrap) as cluster:
        Users(cluster).set_password("maria", [mechanism], PASSWORD, 8192)
    describe = ("kafka-configs", "--describe", "--entity-type", "users")
    awaited(lambda: "iterations=8192" in beside.tools.run(*describe) or None, "the user is described")
    assert beside.logs_in(mechanism, "maria", PASSWORD)
    assert not beside.logs_in(mechanism, "maria", "wrong", timeout_s=10)


def test_a_user_that_is_made_in_zookeeper_logs_in_at_kafka_at_once(beside):
    with in_zookeeper(beside.zookeeper) as users:
        users.set_password("root", SCRAM, PASSWORD, 4096)
    assert all(beside.logs_in(one, "root", PASSWORD) for one in SCRAM)


def test_a_user_that_kafkas_tool_makes_is_known_here_and_their_nodes_are_alike(beside):
    added = ",".join(f"{one}=[iterations=4096,password={PASSWORD}]" for one in SCRAM)
    beside.tools.run("kafka-configs", "--alter", "--add-config", added, "--entity-type", "users", "--entity-name", NAME)
    theirs = beside.node(NODE)
    with Cluster(beside.ours.bootstrap) as cluster:
        users = Users(cluster)
        assert users.describe()[NAME] == dict.fromkeys(SCRAM, 4096)
        for mechanism in SCRAM:
            assert proves(mechanism, theirs["config"], NAME, PASSWORD)
            salt = parse_credential(theirs["config"][mechanism]).salt
            salted = salted_password(SCRAM_HASHES[mechanism], PASSWORD, salt, 4096)
            assert credential_text(credential_of(mechanism, salted, salt, 4096)) == theirs["config"][mechanism]
        users.set_password(NAME, SCRAM, "paper", 4096)
    ours = beside.node(NODE)
    assert {**ours, "config": None} == {**theirs, "config": None}
    assert [part.split("=")[0] for part in ours["config"][SCRAM[0]].split(",")] == [
        part.split("=")[0] for part in theirs["config"][SCRAM[0]].split(",")
    ]
    deleted = ",".join(SCRAM)
    beside.tools.run(
        "kafka-configs", "--alter", "--delete-config", deleted, "--entity-type", "users", "--entity-name", NAME
    )
    with Cluster(beside.ours.bootstrap) as cluster:
        assert NAME not in Users(cluster).describe()
