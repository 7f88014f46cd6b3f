"""Clients log in to Millrace by a delegation token that Kafka's tool has had made there, or at Apache Kafka.

Both brokers are on one ZooKeeper. librdkafka, kafka-python, aiokafka and kafkajs can't log in by a token.
"""

import re
from uuid import uuid4

import confluent_kafka
import pytest

from millrace.addresses import LOOPBACK
from millrace.errors import SetupError
from millrace.ports import free_port
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_support.certificates import Authority
from millrace_support.secured_clients.programs import client_programs, client_properties
from millrace_support.secured_clients.task import PASSWORD, USER, Login, RefusedError, Task
from millrace_support.waiting import awaited

pytestmark = pytest.mark.peers

TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
SCRAM = "SCRAM-SHA-256"
CLIENTS = ("java-3.9", "java-4.1", "franz-go")
SIDES = ("Millrace", "Kafka")


def properties(address, files):
    """The properties of a broker of either side with one listener more, by SASL and TLS."""
    plain = f'{LOGIN_MODULES["PLAIN"]} required username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
    return {
        "listeners": f"PLAINTEXT://{LOOPBACK}:{free_port()},SECURED://{address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        "listener.name.secured.plain.sasl.jaas.config": plain,
        "listener.name.secured.scram-sha-256.sasl.jaas.config": f"{LOGIN_MODULES[SCRAM]} required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.key_store_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.trust_store_pem),
        "delegation.token.secret.key": "tokens are made by this",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
    }


class Sides:
    """A broker of each side on one ZooKeeper, and Kafka's tool, which asks either for tokens."""

    def __init__(self, kafka, folder, zookeeper):
        self._kafka, self._folder = kafka, folder
        self._files = Authority().issue().write(folder)
        self.addresses = {side: f"{LOOPBACK}:{free_port()}" for side in SIDES}
        theirs, ours = (properties(self.addresses[side], self._files) for side in ("Kafka", "Millrace"))
        plain = theirs["listeners"].split(",")[0].removeprefix("PLAINTEXT://")
        self.theirs = KafkaBroker(kafka, folder / "kafka", zookeeper=zookeeper, listen=plain, properties=theirs)
        self.ours = BrokerProcess(folder / "millrace", zookeeper=zookeeper, broker_id=2, properties=ours)

    def close(self):
        self.ours.close()
        self.theirs.stop()

    def login(self, side, **others):
        """How a client logs in to one side, by the user's password where nothing else is given."""
        usual = {"mechanism": "PLAIN", "authority": str(self._files.trust_store_pem)}
        return Login(bootstrap=self.addresses[side], **(usual | others))

    def tool(self, login, *arguments):
        """Runs Kafka's tool."""
        file = self._folder / f"{uuid4().hex}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in client_properties(login).items()))
        return self._kafka.run(
            TOOL, "--bootstrap-server", login.bootstrap, "--command-config", str(file), *arguments
        )  # fmt: skip

    def token(self, side):
        """Has one side make a token; returns how a client logs in to Millrace by it."""
        printed = self.tool(self.login(side), "--create", "--max-life-time-period", "-1")
        token_id = re.search(r"^(\S{22})\s", printed, re.MULTILINE)[1]
        secret = re.search(r"\S{88}", printed)[0]
        return self.login("Millrace", mechanism=SCRAM, user=token_id, password=secret, is_delegated=True)


@pytest.fixture(scope="module")
def sides(tmp_path_factory, zookeeper):
    try:
        kafka = find_kafka("3.9")
    except SetupError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("tokens")
    both = Sides(kafka, folder, f"{zookeeper.address}/{uuid4().hex}")
    yield both
    both.close()


@pytest.fixture(scope="module")
def programs(client_command):
    """Yields a function that starts the program of a client, once."""
    with client_programs(client_command) as program:
        yield program


def served(client, task):
    """What the client consumes, once the broker knows the token; None until then."""
    try:
        return client(task)
    except RefusedError:
        return None


def refused(client, task):
    """Returns what the client says when its token is refused; None while the broker still takes the token."""
    try:
        client(task)
    except RefusedError as error:
        return str(error)
    return None


@pytest.mark.parametrize("side", SIDES)
def test_clients_log_in_by_a_token_of_either_side_until_it_is_ended(sides, programs, side):
    login = sides.token(side)
    for name in CLIENTS:
        client, task = programs(name), Task(login=login, topic=f"{name}-{side}")
        assert awaited(lambda client=client, task=task: served(client, task), "the token is known") == task.values
    sides.tool(sides.login("Millrace"), "--expire", "--expiry-time-period", "-1", "--hmac", login.password)
    for name in CLIENTS:
        client, task = programs(name), Task(login=login, topic=f"{name}-{side}")
        said = awaited(lambda client=client, task=task: refused(client, task), "the token is known no more")
        assert "invalid credentials" in said


def test_librdkafka_is_refused_as_it_can_not_say_that_it_has_a_token(sides):
    """Once it can, docs/delegation-tokens.md is to say so."""
    login, said = sides.token("Millrace"), []
    client = confluent_kafka.Producer({
        "bootstrap.servers": login.bootstrap, "security.protocol": "SASL_SSL", "ssl.ca.location": login.authority,
        "sasl.mechanism": SCRAM, "sasl.username": login.user, "sasl.password": login.password,
        "error_cb": said.append, "log_level": 0,
    })  # fmt: skip
    awaited(lambda: (client.poll(0.1), said or None)[1], "the login is refused")
    assert "invalid credentials" in said[0].str()


def test_who_has_logged_in_by_a_token_gets_no_token(sides):
    """The tool may ask either broker, which refuses the login until it has heard of the token."""
    login = sides.token("Millrace")

    def said():
        with pytest.raises(SetupError) as refusal:
            sides.tool(login, "--create", "--max-life-time-period", "-1")
        return None if "Authentication failed" in str(refusal.value) else str(refusal.value)

    assert "not allowed on" in awaited(said, "the token is known")
