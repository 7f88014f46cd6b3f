"""Six stock clients log in to one broker over TLS, by every mechanism that they know, and say why they are refused.

All know PLAIN, SCRAM, OAUTHBEARER and certificates. aiokafka alone does not authenticate again on a connection.
"""

import re
import urllib.request
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace_support.secured_broker import MECHANISMS, SESSION_MS, SecuredBroker
from millrace_support.secured_clients.programs import client_programs
from millrace_support.secured_clients.python_clients import with_aiokafka, with_confluent_kafka, with_kafka_python
from millrace_support.secured_clients.task import RefusedError, Task
from millrace_support.token_server import TokenServer

LOGIN_FAILED = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
IN_PYTHON = {"confluent-kafka": with_confluent_kafka, "kafka-python": with_kafka_python, "aiokafka": with_aiokafka}
JAVA = [pytest.param(f"java-{version}", marks=pytest.mark.peers) for version in ("3.9", "4.1")]
# What clients say that lose the broker's answer to a login.
WITHOUT_WORDS = {
    ("kafkajs", "OAUTHBEARER"): "Closed connection",
    ("aiokafka", "OAUTHBEARER"): "Connection at .* closed",
    # It drops what it has received when the end of the connection comes in the same round of reading.
    **{("kafka-python", one): f"{LOGIN_FAILED} {one}|socket disconnected" for one in MECHANISMS},
}
EXPIRED = "certificate has expired|validity check failed"
ELSEWHERE = (
    "IP address mismatch|Hostname/IP does not match|cannot validate certificate for 127.0.0.1|No subject alternative"
)
OF_LIBRDKAFKA = "broker certificate could not be verified"
AGAIN = ["confluent-kafka", "kafka-python", "kafkajs", "franz-go", *JAVA]
PAUSE_MS, RECORDS_MORE = 50, 40
SESSIONS = 2
CLIENTS = [*AGAIN, "aiokafka"]


class Counted(NamedTuple):
    """What the broker has counted: renewed logins, and connections that it closed for what they sent."""

    renewed: int
    refused: int


@pytest.fixture(scope="module")
def tokens():
    with TokenServer({"alice": "correct-horse-7"}) as server:
        yield server


@pytest.fixture(scope="module")
def broker(tmp_path_factory, tokens):
    with SecuredBroker(tmp_path_factory.mktemp("secured"), tokens) as running:
        yield running


@pytest.fixture(scope="module")
def programs(client_command, tokens):
    """Yields a function that starts the program of a client, once."""
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.token_url}"
    with client_programs(lambda name: client_command(name, allowed)) as program:
        yield program


@pytest.fixture
def client(request, programs):
    return IN_PYTHON.get(request.param) or programs(request.param)


@pytest.fixture
def topic(request):
    """A name that no other case has."""
    return "".join(one if one.isalnum() else "-" for one in request.node.name)


every_client = pytest.mark.parametrize("client", CLIENTS, indirect=True)


@every_client
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_produces_and_consumes_by_sasl_over_tls(broker, client, mechanism, topic):
    task = Task(login=broker.login(mechanism), topic=topic)
    assert client(task) == task.values


@every_client
def test_a_client_produces_and_consumes_by_its_certificate(broker, client, topic):
    task = Task(login=broker.with_certificate(), topic=topic)
    assert client(task) == task.values


@every_client
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_tells_of_a_wrong_password(broker, client, mechanism, topic, request):
    with pytest.raises(RefusedError) as said:
        client(Task(login=broker.login(mechanism, password="wrong"), topic=topic))
    name = request.node.callspec.params["client"]
    assert re.search(WITHOUT_WORDS.get((name, mechanism), said_by_the_broker(name, mechanism)), str(said.value))


def said_by_the_broker(name, mechanism):
    if (name.startswith("java"), mechanism) == (True, "OAUTHBEARER"):
        return "invalid_client"  # the token server gives no token
    return f"{LOGIN_FAILED} {mechanism}"


@every_client
@pytest.mark.parametrize(
    ("listener", "words"), [("EXPIRED", EXPIRED), ("ELSEWHERE", ELSEWHERE)], ids=["expired", "elsewhere"]
)
def test_a_client_tells_what_is_wrong_with_a_certificate(broker, client, listener, words, topic):
    with pytest.raises(RefusedError, match=f"{words}|{OF_LIBRDKAFKA}"):
        client(Task(login=broker.with_certificate(listener), topic=topic))


@pytest.mark.parametrize("client", AGAIN, indirect=True)
def test_a_client_authenticates_again_under_load_and_nothing_is_lost(broker, client, topic):
    """A connection that outlived its session would be closed for what it sends, and counted."""
    login = broker.login("SCRAM-SHA-512", "SHORT")
    start = counted(broker)
    task = Task(login=login, topic=topic, records=SESSIONS * SESSION_MS // PAUSE_MS + RECORDS_MORE, pause_ms=PAUSE_MS)
    assert client(task) == task.values
    end = counted(broker)
    assert end.refused == start.refused
    assert end.renewed - start.renewed >= SESSIONS


def counted(broker):
    with urllib.request.urlopen(f"{broker.process.admin_url}/metrics") as answer:
        text = answer.read().decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    value = {(one.name, *one.labels.values()): one.value for one in samples}
    return Counted(value["millrace_authentications_total", "renewed"], value["millrace_connections_refused_total",])
