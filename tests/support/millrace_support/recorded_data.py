"""A data folder with something of everything that a broker keeps, for the tests of upgrades and of going back.

    python -m millrace_support.recorded_data tests/compat/recorded/0.1.tar.gz

records what the version writes that is installed here: the folder of a broker, stopped cleanly, and a table of its
topic. It is run once for a version, when that is released, and the file is then kept.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.client import Admin, Cluster, Configs, Groups, SimpleConsumer, SyncProducer, Users
from millrace.client.access import Quotas
from millrace.client.configs import ResourceKind
from millrace.client.groups import GroupOffset
from millrace.records.compression import Codec
from millrace.records.record import Header, NewRecord
from millrace.testing.broker import BrokerProcess

PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.retention.minutes": "2147483647",  # a recording is years old one day
    "log.retention.ms": "-1",
}
RECORDED = Path(__file__).parents[2] / "compat" / "recorded" / "0.1.tar.gz"
MIXED, COMPACTED, CUT, COPIED = "mixed", "compacted", "cut", "copied"
BASE_MS = 1_700_000_000_000
PER_CODEC = 4
CUT_BEFORE = 3
USER = "alice"
TIMEOUT_S = 60
OPEN = "left-open"


def expected_records() -> list[tuple[int, bytes, bytes, tuple[Header, ...]]]:
    """Returns (timestamp, key, value, headers) of what is in partition 0 of MIXED, codec after codec."""
    return [
        (BASE_MS + index, b"key-%d" % index, b"value-%d" % index, (("trace", b"%d" % index), ("none", None)))
        for index in range(PER_CODEC * len(Codec))
    ]


def write(bootstrap: str) -> None:
    """Gives a broker something of everything to keep."""
    with Cluster(bootstrap) as cluster:
        admin = Admin(cluster)
        admin.create_topic(MIXED, 2, config={"retention.ms": "-1"})
        admin.create_topic(COMPACTED, 1, config={"cleanup.policy": "compact"})
        for name in (CUT, COPIED):
            admin.create_topic(name, 1)
        _write_records(cluster)
        admin.delete_records(CUT, 0, CUT_BEFORE)
        Configs(cluster).change(ResourceKind.BROKER, "", {"log.cleaner.backoff.ms": "17000"})
        Users(cluster).set_password(USER, ["SCRAM-SHA-256"], "secret", 4096)
        Quotas(cluster).alter({"user": USER}, {"producer_byte_rate": 1_000_000.0})
        Groups(cluster).commit("simple", {(MIXED, 0): GroupOffset(5, "")})
    _consume(bootstrap, "classic", 3)
    _consume(bootstrap, "consumer", 7)
    _transact(bootstrap)


def _write_records(cluster: Cluster) -> None:
    producer, records = SyncProducer(cluster), expected_records()
    for number, codec in enumerate(Codec):
        some = records[number * PER_CODEC : (number + 1) * PER_CODEC]
        producer.send(
            MIXED, 0, [NewRecord(value, key, time_ms, headers) for time_ms, key, value, headers in some], codec=codec
        )
    for version in range(3):
        producer.send(COMPACTED, 0, [NewRecord(b"%d" % version, b"k%d" % key, BASE_MS) for key in range(5)])
    producer.send(CUT, 0, [NewRecord(b"%d" % number, None, BASE_MS) for number in range(8)])


def _consume(bootstrap: str, protocol: str, count: int) -> None:
    """Lets a member of a group, by this protocol, read so many records and commit."""
    settings = {"group.id": protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
    consumer.subscribe([MIXED])
    messages = consumer.consume(count, TIMEOUT_S)
    assert len(messages) == count, messages
    consumer.commit(offsets=[TopicPartition(MIXED, 0, count)], asynchronous=False)
    consumer.close()


def _transact(bootstrap: str) -> None:
    """Commits a transaction with offsets of a group, aborts one, and leaves one open."""
    producer = transactional(bootstrap, "steady")
    producer.produce(COPIED, b"committed")
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "copier"})
    producer.send_offsets_to_transaction([TopicPartition(MIXED, 0, 9)], reader.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    reader.close()
    producer.begin_transaction()
    producer.produce(COPIED, b"aborted")
    assert producer.flush(TIMEOUT_S) == 0
    producer.abort_transaction(TIMEOUT_S)
    left = transactional(bootstrap, OPEN)
    left.produce(COPIED, b"left open")
    assert left.flush(TIMEOUT_S) == 0


def transactional(bootstrap: str, name: str) -> Producer:
    """Returns a producer that has begun a transaction; it ends what the one before it has left open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    return producer


def check(bootstrap: str) -> None:
    """Checks that a broker has what `write` has written, and continues all of it."""
    with Cluster(bootstrap) as cluster:
        _check_records(cluster)
        _check_settings(cluster)
        groups = Groups(cluster)
        offsets = {name: groups.offsets(name)[MIXED, 0].offset for name in ("simple", "classic", "consumer", "copier")}
        assert offsets == {"simple": 5, "classic": 3, "consumer": 7, "copier": 9}
    transactional(bootstrap, OPEN).abort_transaction(TIMEOUT_S)
    for name, value in (("steady", b"continued"), ("new", b"begun")):
        producer = transactional(bootstrap, name)
        producer.produce(COPIED, value)
        producer.commit_transaction(TIMEOUT_S)
    assert _committed(bootstrap, COPIED, 3) == [b"committed", b"continued", b"begun"]


def _check_records(cluster: Cluster) -> None:
    consumer = SimpleConsumer(cluster)
    found = [
        (one.timestamp_ms, one.key, one.value, tuple(one.headers)) for one in consumer.fetch(MIXED, 0, 0).messages()
    ]
    assert found == expected_records()
    latest = {one.key: one.value for one in consumer.fetch(COMPACTED, 0, 0).messages()}
    assert latest == {b"k%d" % key: b"2" for key in range(5)}
    assert (consumer.earliest(CUT, 0), consumer.latest(CUT, 0)) == (CUT_BEFORE, 8)


def _check_settings(cluster: Cluster) -> None:
    configs = Configs(cluster)
    assert configs.describe_topics([COMPACTED], ["cleanup.policy"])[COMPACTED]["cleanup.policy"].value == "compact"
    broker = {one.name: one.value for one in configs.describe(ResourceKind.BROKER, "")}
    assert broker["log.cleaner.backoff.ms"] == "17000"
    assert list(Users(cluster).describe()) == [USER]
    (quota,) = Quotas(cluster).describe()
    assert (quota.entity, dict(quota.quotas)) == ({"user": USER}, {"producer_byte_rate": 1_000_000.0})


def _committed(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Returns the committed records of a topic, which are to be so many."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        values.append(message.value())
    consumer.close()
    assert len(values) == count, values
    return values


def unpack(archive: Path, place: Path) -> None:
    """Lays out a recording as `data` and `warehouse` below a folder."""
    with tarfile.open(archive) as recording:
        recording.extractall(place, filter="data")


def make_recording(archive: Path) -> None:
    """Makes the archive of what this version writes."""
    with tempfile.TemporaryDirectory() as place:
        data, table = Path(place, "data"), Path(place, "warehouse", MIXED)
        with BrokerProcess(data, properties=PROPERTIES) as broker:
            write(broker.bootstrap)
            load = ["warehouse", "load", MIXED, "--table", str(table), "--bootstrap", broker.bootstrap]
            subprocess.run([sys.executable, "-m", "millrace_ops", *load], check=True)
            broker.stop()
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:gz") as recording:
            for one in (data, table.parent):
                recording.add(one, one.name)


if __name__ == "__main__":
    make_recording(Path(sys.argv[1]))
