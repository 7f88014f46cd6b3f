"""Our clients reach a secured Apache Kafka: TLS, passwords, certificates; and what a user reads where they don't."""

import asyncio
import time

import pytest

from millrace.addresses import parse_address
from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.client.connection import Connection
from millrace.client.consumer import ConsumerConnector
from millrace.client.producer import Producer
from millrace.clock import SystemClock
from millrace.errors import MillraceError, SaslAuthenticationError, TlsError
from millrace.records.record import NewRecord
from millrace.security.client_security import ClientSecurity
from millrace.wire.messages import METADATA
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_broker.replication.broker_link import BrokerLink
from millrace_support.secured_kafka import SHORT_SESSION_MS, SecuredKafka

BEYOND_A_SESSION_S = 1.25 * SHORT_SESSION_MS / 1000  # and several renewals
PAUSE_S = 0.02  # a session of requests without a pause costs a processor its time, and shows no more
NO_TOPICS = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


@pytest.fixture(scope="module", params=["3.9", "4.1"])
def kafka(request, tmp_path_factory):
    zookeeper = request.getfixturevalue("zookeeper").address + "/secured" if request.param == "3.9" else None
    with SecuredKafka(find_kafka(request.param), tmp_path_factory.mktemp("kafka"), zookeeper) as started:
        started.version, started.zookeeper = request.param, zookeeper
        yield started


WAYS = {
    "passwords by SCRAM": ("PASSWORDS", lambda kafka: kafka.passwords("SCRAM-SHA-512")),
    "passwords by PLAIN": ("PASSWORDS", lambda kafka: kafka.passwords("PLAIN")),
    "certificates": ("MUTUAL", lambda kafka: kafka.mutual()),
}


@pytest.fixture(params=WAYS)
def way(request, kafka):
    listener, properties = WAYS[request.param]
    return kafka.address(listener), properties(kafka)


def test_every_client_gets_in(kafka, way):
    bootstrap, properties = way
    topic = f"reached-{time.monotonic_ns()}"
    security = ClientSecurity.from_properties(properties)
    with Cluster(bootstrap, security=security) as cluster:
        Admin(cluster).create_topic(topic, 1)
        assert SyncProducer(cluster).send(topic, 0, [NewRecord(b"first")]) == 0
        connection = cluster.connection_to(parse_address(bootstrap))
        cluster.metadata([topic])
        assert cluster.connection_to(parse_address(bootstrap)) is connection
    with Producer({"broker.list": bootstrap, "linger.ms": "0", "producer.type": "async", **properties}) as producer:
        sent = [producer.send(topic, b"x" * 50_000, partition=0) for _ in range(200)]
        assert [one.result(60).offset for one in sent] == list(range(1, 201))
    with SimpleConsumer(bootstrap, security=security) as consumer:
        read = [record.value for record in consumer.messages(topic, 0)]
        assert read == [b"first"] + [b"x" * 50_000] * 200


def test_a_group_member_finds_the_listener_of_its_protocol(kafka):
    if kafka.zookeeper is None:
        pytest.skip("Kafka 4 has no ZooKeeper")
    properties = kafka.passwords("SCRAM-SHA-512")
    with Producer({"zk.connect": kafka.zookeeper, **properties}) as producer:
        producer.send("by-zookeeper", b"hello")
    member = {"group.id": "secured", "zookeeper.connect": kafka.zookeeper, "auto.offset.reset": "smallest"}
    with ConsumerConnector({**member, "consumer.timeout.ms": "120000", **properties}) as connector:
        (stream,) = connector.create_message_streams({"by-zookeeper": 1})["by-zookeeper"]
        assert next(iter(stream)).value == b"hello"


@pytest.fixture
def renewed_early(monkeypatch):
    """Clients renew sessions of eight seconds after two: a busy machine may keep one waiting for several seconds."""
    monkeypatch.setattr("millrace.client.connection.RENEWAL_EARLIEST", 0.2)
    monkeypatch.setattr("millrace.client.connection.RENEWAL_LATEST", 0.25)


@pytest.mark.usefixtures("renewed_early")
def test_a_session_that_ends_is_renewed_in_time(kafka):
    """Kafka closes a connection whose session has ended; here that must not be seen by anybody."""
    properties = kafka.passwords("SCRAM-SHA-512", protocol="SASL_PLAINTEXT")
    security, bootstrap = ClientSecurity.from_properties(properties), kafka.address("SHORT")
    ends_s = time.monotonic() + BEYOND_A_SESSION_S
    with (
        Connection(
            parse_address(bootstrap), client_id="c", timeout_s=30, clock=SystemClock(), security=security
        ) as connection,
        Producer({"broker.list": bootstrap, "producer.type": "async", "retries": "0", **properties}) as producer,
    ):
        sent = []
        while time.monotonic() < ends_s:
            assert connection.request(METADATA, NO_TOPICS).brokers
            sent += [producer.send("renewed", b"x", partition=0) for _ in range(10)]
            time.sleep(PAUSE_S)
        offsets = [one.result(60).offset for one in sent]
    assert sorted(offsets) == list(range(len(offsets)))


@pytest.mark.usefixtures("renewed_early")
def test_links_between_brokers_get_in_and_stay_in(kafka, way):
    bootstrap, properties = way
    short = kafka.passwords("SCRAM-SHA-512", protocol="SASL_PLAINTEXT")

    async def ask_for_a_while(address, given, seconds):
        link = await BrokerLink.connect(
            parse_address(address),
            client_id="broker-7",
            timeout_s=30,
            max_response_bytes=1 << 20,
            security=ClientSecurity.from_properties(given),
        )
        ends_s = time.monotonic() + seconds
        answered = 0
        while not answered or time.monotonic() < ends_s:
            answers = await asyncio.gather(*(link.request(METADATA, 9, NO_TOPICS) for _ in range(10)))
            answered += sum(bool(answer.brokers) for answer in answers)
            await asyncio.sleep(PAUSE_S)
        link.close()
        return answered

    async def both():
        return await asyncio.gather(
            ask_for_a_while(bootstrap, properties, 0),
            ask_for_a_while(kafka.address("SHORT"), short, BEYOND_A_SESSION_S),
        )

    assert min(asyncio.run(both())) >= 10


@pytest.mark.parametrize(
    ("listener", "properties", "error"),
    [
        ("PASSWORDS", lambda kafka: kafka.passwords("SCRAM-SHA-512", "wrong-horse"), SaslAuthenticationError),
        ("ELSEWHERE", lambda kafka: kafka.trusting(), TlsError),
    ],
)
def test_a_link_that_is_refused_says_why(kafka, listener, properties, error):
    async def connect():
        await BrokerLink.connect(
            parse_address(kafka.address(listener)),
            client_id="broker-7",
            timeout_s=30,
            max_response_bytes=1 << 20,
            security=ClientSecurity.from_properties(properties(kafka)),
        )

    with pytest.raises(error):
        asyncio.run(connect())


def refusal(bootstrap, properties):
    with (
        Cluster(bootstrap, security=ClientSecurity.from_properties(properties), timeout_s=60) as cluster,
        pytest.raises(MillraceError) as caught,
    ):
        cluster.metadata([])
    return caught.value


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_is_said(kafka, mechanism):
    address = kafka.address("PASSWORDS")
    error = refusal(address, kafka.passwords(mechanism, "wrong-horse"))
    assert isinstance(error, SaslAuthenticationError)
    assert str(error).startswith(f"the broker at {address} does not accept the credentials of sasl.jaas.config: ")
    assert "wrong-horse" not in str(error)


def test_a_producer_with_a_wrong_password_gives_its_records_back(kafka):
    properties = kafka.passwords("SCRAM-SHA-512", "wrong-horse")
    with (
        Producer({"broker.list": kafka.address("PASSWORDS"), **properties}) as producer,
        pytest.raises(SaslAuthenticationError),
    ):
        producer.send("refused", b"x")


def test_a_certificate_of_another_host_is_said(kafka):
    error = refusal(kafka.address("ELSEWHERE"), kafka.trusting())
    assert isinstance(error, TlsError)
    assert str(error).startswith("the certificate of 127.0.0.1 is made for another host: IP address mismatch")
    unchecked = {**kafka.trusting(), "ssl.endpoint.identification.algorithm": ""}
    with Cluster(kafka.address("ELSEWHERE"), security=ClientSecurity.from_properties(unchecked)) as cluster:
        assert cluster.metadata([]).brokers


def test_an_expired_certificate_is_said(kafka):
    error = refusal(kafka.address("EXPIRED"), kafka.trusting())
    assert (type(error), str(error)) == (TlsError, "the certificate of 127.0.0.1 has expired")


def test_an_unknown_authority_is_said(kafka):
    error = refusal(kafka.address("MUTUAL"), {"security.protocol": "SSL"})
    expected = "the certificate of 127.0.0.1 is signed by nobody whom ssl.truststore.location trusts"
    assert (type(error), str(error)) == (TlsError, expected)


def test_a_missing_client_certificate_is_said(kafka):
    address = kafka.address("MUTUAL")
    error = refusal(address, kafka.trusting())
    assert isinstance(error, TlsError)
    assert str(error).startswith(f"{address} does not take this client's certificate, or misses it")


def test_plain_text_where_tls_is_spoken_is_said(kafka):
    address = kafka.address("MUTUAL")
    assert f"the broker at {address}" in str(refusal(address, {}))


def test_tls_where_plain_text_is_spoken_is_said(kafka):
    address = kafka.broker.bootstrap
    assert address in str(refusal(address, kafka.trusting()))
