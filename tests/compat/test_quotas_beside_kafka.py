"""Quotas that Apache Kafka 3.9 writes are obeyed by Millrace, and the other way round; nodes are equal as JSON."""

import json
from uuid import uuid4

import pytest
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from millrace.clock import SystemClock
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.zk.session import ZooKeeperSession
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.kafka_tools import KafkaTools
from millrace_support.raw import RawConnection

QUOTAS = {
    "producer_byte_rate": 1048576.0,
    "consumer_byte_rate": 2097152.0,
    "request_percentage": 12.5,
    "controller_mutation_rate": 12345678.0,
}
# Each is written by both, under names that differ in the last letter only.
ENTITIES = [
    ({"user": "a/b *~é{}"}, QUOTAS),
    ({"user": "alice{}", "client-id": "c d"}, QUOTAS),
    ({"user": None, "client-id": "c{}"}, QUOTAS),
    ({"client-id": "app{}"}, {"request_percentage": 0.0001}),
    ({"ip": "192.0.2.{}"}, {"connection_creation_rate": 7.0}),
]
DEFAULTS = [({"user": None}, {"request_percentage": 200.0}), ({"ip": None}, {"connection_creation_rate": 8000.0})]
SMALL = {"offsets.topic.replication.factor": "1", "controlled.shutdown.enable": "false"}


@pytest.fixture(scope="module")
def brokers(kafka, zookeeper, tmp_path_factory):
    """A broker of Kafka and one of Millrace in one cluster, and a session with its ZooKeeper."""
    folder, address = tmp_path_factory.mktemp("beside"), f"{zookeeper.address}/{uuid4().hex}"
    with (
        KafkaBroker(kafka, folder / "1", zookeeper=address, broker_id=1, properties=SMALL) as theirs,
        BrokerProcess(folder / "2", zookeeper=address, broker_id=2) as ours,
    ):
        session = ZooKeeperSession(
            address,
            session_timeout_ms=18_000,
            connection_timeout_ms=18_000,
            on_change=lambda _: None,
            clock=SystemClock(),
        )
        session.start()
        yield theirs, ours, session
        session.close()


def named(entity, letter):
    return {kind: name and name.format(letter) for kind, name in entity.items()}


def alter(broker, entity, quotas, unset=()):
    """Alters at this very broker: `Quotas` would ask the controller."""
    with RawConnection(broker.bootstrap) as raw:
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": value, "remove": False} for key, value in quotas.items()]
            + [{"key": key, "value": 0.0, "remove": True} for key in unset],
        }
        (altered,) = raw.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False}).entries
    assert altered.error_code == 0, altered.error_message


def described(broker):
    with RawConnection(broker.bootstrap) as raw:
        answer = raw.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": (), "strict": False})
    return {
        tuple(sorted((one.entity_type, one.entity_name) for one in entry.entity)): {
            one.key: one.value for one in entry.values
        }
        for entry in answer.entries
    }


@retry(retry=retry_if_result(lambda found: not found), stop=stop_after_delay(60), wait=wait_fixed(0.05))
def until(holds):
    return holds()


def nodes(session, path="/config"):
    """Returns the JSON of every node of users, clients and addresses, by its path."""
    found = {}
    for child in session.children(path):
        below = f"{path}/{child}"
        if below.split("/")[2] in ("users", "clients", "ips"):
            data = session.get(below)
            if data and b"config" in data:
                found[below] = json.loads(data)
            found |= nodes(session, below)
    return found


def test_both_write_the_same_nodes_and_read_each_others_quotas(brokers):
    theirs, ours, session = brokers
    expected = {}
    for entity, quotas in ENTITIES:
        for broker, letter in ((theirs, 1), (ours, 2)):
            alter(broker, named(entity, letter), quotas)
            expected[tuple(sorted(named(entity, letter).items()))] = quotas
    for broker, (entity, quotas) in zip((theirs, ours), DEFAULTS, strict=True):
        alter(broker, entity, quotas)
        expected[tuple(entity.items())] = quotas
    for broker in (theirs, ours):
        until(lambda broker=broker: described(broker) == expected)
    written = nodes(session)
    by_kafka = {path: config for path, config in written.items() if "1" in path.replace("192", "")}
    assert len(by_kafka) == len(ENTITIES)
    for path, config in by_kafka.items():
        other = path[: path.rindex("1")] + "2" + path[path.rindex("1") + 1 :]
        assert written[other] == config
    for entity, quotas in ENTITIES:
        alter(ours, named(entity, 1), {}, quotas)
        alter(theirs, named(entity, 2), {}, quotas)
    left = {tuple(entity.items()): quotas for entity, quotas in DEFAULTS}
    for broker in (theirs, ours):
        until(lambda broker=broker: described(broker) == left)


def test_kafka_configs_drives_millrace_and_its_quotas_are_obeyed_at_once(kafka, tmp_path):
    with BrokerProcess(tmp_path / "alone") as ours:
        tools = KafkaTools(kafka, ours.bootstrap)
        change = ("--alter", "--add-config", "producer_byte_rate=1024,request_percentage=0")
        tools.run("kafka-configs", *change, "--entity-type", "clients", "--entity-name", "raw")
        with RawConnection(ours.bootstrap) as raw:
            answer = raw.request(ApiKey.LIST_GROUPS, 4, {"states_filter": ()})
        assert answer.throttle_time.total_seconds() == 1
        shown = tools.run("kafka-configs", "--describe", "--entity-type", "clients", "--entity-name", "raw")
        assert "producer_byte_rate=1024.0" in shown
        removal = ("--alter", "--delete-config", "producer_byte_rate,request_percentage")
        tools.run("kafka-configs", *removal, "--entity-type", "clients", "--entity-name", "raw")
        address = ("--entity-type", "ips", "--entity-name", "192.0.2.77")
        tools.run("kafka-configs", "--alter", "--add-config", "connection_creation_rate=5", *address)
        assert "connection_creation_rate=5.0" in tools.run("kafka-configs", "--describe", *address)
        with RawConnection(ours.bootstrap) as raw:
            answer = raw.request(ApiKey.LIST_GROUPS, 4, {"states_filter": ()})
        assert answer.throttle_time.total_seconds() == 0


def test_a_quota_that_kafka_writes_is_obeyed_by_millrace(brokers):
    theirs, ours, _ = brokers
    alter(theirs, {"user": "ANONYMOUS", "client-id": "raw"}, {"request_percentage": 0.0})

    def is_throttled():
        with RawConnection(ours.bootstrap) as raw:
            return raw.request(ApiKey.LIST_GROUPS, 4, {"states_filter": ()}).throttle_time.total_seconds() == 1

    until(is_throttled)
    alter(theirs, {"user": "ANONYMOUS", "client-id": "raw"}, {}, ["request_percentage"])
    until(lambda: not is_throttled())
