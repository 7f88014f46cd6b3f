"""Millrace is the controller of an Apache Kafka 3.9 broker: topics are created and deleted, and records flow.

The controller's own broker is a socket that serves what brokers ask a controller for, and what Kafka's tools ask of it.
"""

import json
from collections import Counter
from functools import partial
from types import SimpleNamespace
from uuid import uuid4

import pytest
from tenacity import retry, stop_after_delay, wait_fixed

from millrace.addresses import plaintext_endpoint
from millrace.client import Cluster, SimpleConsumer, SyncProducer
from millrace.client.connection import Connection
from millrace.clock import SystemClock
from millrace.records.record import NewRecord, decode_records
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, encode
from millrace.zk import codec, paths
from millrace.zk.operations import Create
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_broker.controller.active_controller import ControllerConfig
from millrace_broker.controller.controller import Controller
from millrace_broker.handlers import controller_requests, reassignments
from millrace_broker.handlers.api import Api
from millrace_broker.storage import TopicPartition
from millrace_support.raw import RawConnection
from millrace_support.recording_broker import RecordingBroker
from millrace_support.zookeeper_sessions import started

OURS, KAFKAS = 1, 2
WAIT_S = 120
connect = partial(Connection, client_id="controller", timeout_s=WAIT_S, clock=SystemClock())
within_time = retry(stop=stop_after_delay(WAIT_S), wait=wait_fixed(0.1), reraise=True)


def create_topic(session, name, *replicas):
    """Creates a topic as a broker does that leaves the first states to the controller."""
    assignment = codec.TopicAssignment(topic_id=uuid4(), replicas=replicas)
    config = Create(paths.topic_config(name), codec.encode_config({}))
    assert session.transact([config, Create(paths.topic(name), codec.encode_topic(assignment))]) is None


def create_topics(services, request):
    message = decode(ApiKey.CREATE_TOPICS, request.version, Direction.REQUEST, request.body)
    for topic in message.topics:
        create_topic(services.session, topic.name, *[(KAFKAS,)] * topic.num_partitions)
    results = [
        {
            "name": topic.name,
            "error_code": 0,
            "error_message": None,
            "configs": [],
            "num_partitions": topic.num_partitions,
            "replication_factor": 1,
        }
        for topic in message.topics
    ]
    fields = {"throttle_time": 0, "topics": results}
    return [encode(ApiKey.CREATE_TOPICS, request.version, Direction.RESPONSE, fields)]


def delete_topics(services, request):
    message = decode(ApiKey.DELETE_TOPICS, request.version, Direction.REQUEST, request.body)
    for topic in message.topics:
        services.session.create(paths.delete_topic(topic.name), b"")
    results = [
        {"name": topic.name, "topic_id": None, "error_code": 0, "error_message": None} for topic in message.topics
    ]
    fields = {"throttle_time": 0, "responses": results}
    return [encode(ApiKey.DELETE_TOPICS, request.version, Direction.RESPONSE, fields)]


def forward(key, services, request):
    """Lets Kafka's broker answer what a tool asks of any broker."""
    with RawConnection(services.kafka) as connection:
        return [connection.exchange(key, request.version, bytes(request.body))]


APIS = (
    Api(ApiKey.METADATA, VersionRange(0, 12), partial(forward, ApiKey.METADATA)),
    Api(ApiKey.DESCRIBE_CLUSTER, VersionRange(0, 0), partial(forward, ApiKey.DESCRIBE_CLUSTER)),
    Api(ApiKey.DESCRIBE_CONFIGS, VersionRange(1, 4), partial(forward, ApiKey.DESCRIBE_CONFIGS)),
    *controller_requests.APIS,
    *reassignments.APIS,
    Api(ApiKey.CREATE_TOPICS, VersionRange(5, 5), create_topics),
    Api(ApiKey.DELETE_TOPICS, VersionRange(6, 6), delete_topics),
)


@pytest.fixture
def cluster(zookeeper):
    """Yields the session and the controller of our broker, and where ZooKeeper is."""
    address = f"{zookeeper.address}/tests/{uuid4().hex}"
    services = SimpleNamespace(
        errors=Counter(), controller=None, session=None, kafka=None, socket=None, authorizer=None
    )

    def told(changed):
        services.controller.zookeeper_changed(changed)

    with RecordingBroker(apis=APIS, services=services) as ours, started(address, told) as session:
        services.session, services.socket = session, ours
        for path in paths.PERSISTENT:
            session.ensure(path)
        services.controller = Controller(session, OURS, ControllerConfig(), connect, SystemClock())
        registration = codec.BrokerRegistration(
            endpoints=(plaintext_endpoint("127.0.0.1", ours.port),), rack=None, timestamp_ms=0
        )
        session.register(paths.broker(OURS), codec.encode_broker(registration), wait_ms=0)
        services.controller.start()
        await_controller(session)
        yield services, address
        services.controller.stop()


@within_time
def await_controller(session):
    assert session.get(paths.CONTROLLER) is not None


@within_time
def await_state(session, key):
    data = session.get(paths.partition_state(*key))
    assert data is not None
    return codec.decode_partition_state(data)


@within_time
def await_isr(session, key, isr):
    assert await_state(session, key).isr == isr


@within_time
def await_gone(session, path):
    assert session.get(path) is None


@within_time
def await_unlisted(tool, topic):
    assert topic not in tool("--list").split()


@within_time
def await_led(session, key, leader):
    state = await_state(session, key)
    assert state.leader == leader
    return state.leader_epoch


@within_time
def producer_id(bootstrap):
    fields = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    with RawConnection(bootstrap) as connection:
        answer = connection.request(ApiKey.INIT_PRODUCER_ID, 4, fields)
    assert answer.error_code == 0
    return answer.producer_id


@within_time
def read(bootstrap, topic):
    with SimpleConsumer(bootstrap) as consumer:
        return [one.value for one in decode_records(consumer.fetch(topic, 0, 0).records)]


def reassign_and_elect(kafka, services, plan):
    """Has Kafka's tools move a replica, which never gets into sync, cancel that, and elect the leader that leads."""
    at = ("--bootstrap-server", services.kafka)
    reassign = partial(kafka.run, "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *at)
    moved = {"topic": "t", "partition": 0, "replicas": [OURS]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}), encoding="utf-8")
    reassign("--execute", "--reassignment-json-file", str(plan))
    topic = codec.decode_topic(services.session.get(paths.topic("t")))
    assert (topic.replicas, topic.adding_replicas) == (((OURS, KAFKAS), (KAFKAS,)), {0: (OURS,)})
    assert f"t-0: replicas: {OURS},{KAFKAS}. adding: {OURS}. removing: {KAFKAS}." in reassign("--list")
    said = reassign("--cancel", "--preserve-throttles", "--reassignment-json-file", str(plan))
    assert "Successfully cancelled partition reassignment for: t-0" in said
    topic = codec.decode_topic(services.session.get(paths.topic("t")))
    assert (topic.replicas, topic.adding_replicas) == (((KAFKAS,), (KAFKAS,)), {})
    services.socket.await_request(lambda request: request.key is ApiKey.STOP_REPLICA)
    elect = partial(kafka.run, "org.apache.kafka.tools.LeaderElectionCommand", *at)
    said = elect("--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert "Valid replica already elected for partitions t-0" in said


def test_kafka_is_led_by_our_controller(cluster, kafka, tmp_path):
    services, address = cluster
    session, controller = services.session, services.controller
    properties = {"replica.lag.time.max.ms": "1000", "controlled.shutdown.retry.backoff.ms": "10"}
    with KafkaBroker(kafka, tmp_path / "data", zookeeper=address, broker_id=KAFKAS, properties=properties) as broker:
        services.kafka = broker.bootstrap
        tool = partial(kafka.run, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap)
        tool("--create", "--topic", "t", "--partitions", "2", "--replication-factor", "1")
        state = await_state(session, TopicPartition("t", 1))
        assert (state.leader, state.isr, state.controller_epoch) == (KAFKAS, (KAFKAS,), 1)
        assert read(broker.bootstrap, "t") == [], "Kafka has heard that it leads the topic"
        with Cluster(broker.bootstrap) as client:
            assert SyncProducer(client).send("t", 0, [NewRecord(value=b"first")]) == 0
        assert read(broker.bootstrap, "t") == [b"first"]
        assert producer_id(broker.bootstrap) == 0, "Kafka has asked our controller for a block"
        assert b'"broker":2' in session.get(paths.PRODUCER_IDS)
        assert controller.is_active

        create_topic(session, "followed", (KAFKAS, OURS))  # our socket fetches nothing, and leaves the ISR
        await_isr(session, TopicPartition("followed", 0), (KAFKAS,))
        with Cluster(broker.bootstrap) as client:
            assert SyncProducer(client).send("followed", 0, [NewRecord(value=b"with acks=all")]) == 0

        reassign_and_elect(kafka, services, tmp_path / "plan.json")

        broker.stop()
        assert "with 1 partitions remaining to move" in broker.read_log(), "the one that no other is in sync with"
        epoch = await_led(session, TopicPartition("t", 0), -1)
        broker.start()
        assert await_led(session, TopicPartition("t", 0), KAFKAS) == epoch + 1
        assert read(broker.bootstrap, "t") == [b"first"]

        folder = broker.data_dir / "t-0"
        assert folder.exists()
        tool("--delete", "--topic", "t")
        await_gone(session, paths.delete_topic("t"))
        assert session.tree(paths.topic("t")) == []
        assert not folder.exists()
        await_unlisted(tool, "t")
