"""A compacted log with transactions in it, moved from Apache Kafka to us and back: each goes on where one was."""

import re
import shutil
from collections import Counter

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from millrace.client import Admin, Cluster
from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_benchmarks.kafka_broker import KafkaBroker, await_markers
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_broker.storage import CleanerConfig, LogCleaner, LogManager
from millrace_broker.storage import TopicPartition as Partition
from millrace_support.markers import append_marker
from millrace_support.read_committed import committed_records

TOPIC, FOLDER = "table", "table-0"
DUMP = "kafka.tools.DumpLogSegments"
# Offsets that do not follow on one another, which the tool reports too, are what compaction leaves.
COMPLAINTS = re.compile(r"Mismatch|Found |isvalid: false|Exception|corrupt|failed", re.IGNORECASE)
RECORD = re.compile(r"^\| offset: (\d+) .*keySize: [1-9]\d* .*headerKeys: \[\] key: ", re.MULTILINE)
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "index.interval.bytes": "150",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1",
}
SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "zookeeper.session.timeout.ms": "45000",
    "transactional.id.expiration.ms": "3600000",
}
KEYS, ROUNDS, TRANSACTIONS = 7, 3, 12
OUR_PRODUCER_ID = 1_000_000


def transactional(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover", "linger.ms": 0, "log_level": 0})
    producer.init_transactions(60)
    return producer


def value_of(number):
    return None if number % 11 == 5 else b"value-%d-" % number + b"x" * 60


def write(bootstrap, producer, numbers):
    """One transaction each, of two records; every third is aborted."""
    for number in numbers:
        producer.begin_transaction()
        for key in (b"key-%d" % (number % KEYS), b"both"):
            producer.produce(TOPIC, value_of(number), key, 0)
        assert producer.flush(60) == 0  # else an abort takes back what was not sent yet
        if number % 3:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    await_markers(bootstrap, TOPIC)


def consumed(bootstrap, isolation):
    """(offset, key, value) of all that Kafka's broker gives a consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation,
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(60)) is not None:
        if message.error() is None:
            found.append((message.offset(), message.key(), message.value()))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
    raise AssertionError("no end of the partition within 30 s")


def table(records):
    return {key: value for key, value in {key: value for _, key, value in records}.items() if value is not None}


def await_compaction(data):
    """Kafka's cleaner has come to the active segment."""

    @retry(retry=retry_if_result(lambda done: not done), stop=stop_after_delay(60), wait=wait_fixed(0.1))
    def is_clean():
        active = max(int(path.stem) for path in (data / FOLDER).glob("*.log"))
        checkpoint = data / "cleaner-offset-checkpoint"
        return checkpoint.exists() and f"{TOPIC} 0 {active}\n" in checkpoint.read_text()

    is_clean()


@pytest.fixture(scope="module")
def theirs(kafka, tmp_path_factory):
    """What Kafka has compacted, stopped: the place, and what its consumers were given by isolation level."""
    place = tmp_path_factory.mktemp("compacted")
    with (
        EmbeddedZooKeeper(place / "zookeeper") as zookeeper,
        KafkaBroker(kafka, place / "data", zookeeper=zookeeper.address, properties=SETTINGS) as broker,
    ):
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, 1, config=TOPIC_CONFIG)
        producer = transactional(broker.bootstrap)
        for number in range(ROUNDS):
            write(broker.bootstrap, producer, range(number * TRANSACTIONS, (number + 1) * TRANSACTIONS))
            await_compaction(place / "data")
        read = {level: consumed(broker.bootstrap, level) for level in ("read_committed", "read_uncommitted")}
        broker.stop()
    return place, read


class OurLog:
    """The folder in our hands."""

    def __init__(self, data):
        settings = dict(
            line.split("=", 1) for line in (data / "meta.properties").read_text().splitlines() if "=" in line
        )
        fs = OsFileSystem()
        self.manager = LogManager(fs, SystemClock(), [str(data)], {}, settings["cluster.id"], 1)
        self.recovery = self.manager.start()
        key = Partition(TOPIC, 0)
        self.log = self.manager.create(key, self.manager.topic_id(key), TOPIC_CONFIG)
        self.cleaner = LogCleaner(fs, SystemClock(), self.manager, CleanerConfig())

    def fetches(self):
        log = self.log
        offset = log.log_start_offset
        while data := log.read(offset, 2000, up_to_offset=log.last_stable_offset(log.log_end_offset)):
            end = [header for _, header in walk(data)][-1].next_offset
            yield data, [(each.producer_id, each.first_offset) for each in log.aborted_transactions(offset, end)]
            offset = end

    def read(self, level):
        if level == "read_committed":
            records = [record for data, aborted in self.fetches() for record in committed_records(data, aborted)]
        else:
            records = [record for data, _ in self.fetches() for record in decode_records(data)]
        return [(record.offset, record.key, record.value) for record in records]

    def headers(self):
        return [header for data, _ in self.fetches() for _, header in walk(data)]

    def write(self, numbers):
        """As `write`, with a producer of our own."""
        for sequence, number in enumerate(numbers):
            records = [NewRecord(value_of(number), key) for key in (b"key-%d" % (number % KEYS), b"both")]
            producer = BatchProducer(OUR_PRODUCER_ID, 0, 2 * sequence)
            self.log.append(encode_batch(records, producer=producer, flags=TRANSACTIONAL_FLAG), leader_epoch=0)
            marker = EndTransactionMarker(ControlType.COMMIT if number % 3 else ControlType.ABORT, 0)
            append_marker(self.log, marker, producer_id=OUR_PRODUCER_ID, producer_epoch=0, leader_epoch=0)

    def compact(self):
        (report,) = self.cleaner.run(force=True)
        assert report.error == ""
        self.manager.release_replaced()
        return report


@pytest.fixture(scope="module")
def ours(theirs, tmp_path_factory):
    """The same folder after we have written to it and compacted it: where, and what is left by isolation level."""
    place, _ = theirs
    target = tmp_path_factory.mktemp("gone-on")
    shutil.copytree(place / "zookeeper", target / "zookeeper")
    data = shutil.copytree(place / "data", target / "data")
    log = OurLog(data)
    start = ROUNDS * TRANSACTIONS
    log.write(range(start, start + TRANSACTIONS))
    before = table(log.read("read_committed"))
    assert log.compact().records_dropped > 0
    assert table(log.read("read_committed")) == before
    left = {level: log.read(level) for level in ("read_committed", "read_uncommitted")}
    log.manager.close()
    return target, left


def test_what_kafka_compacted_reads_the_same_with_us(theirs, tmp_path):
    place, read = theirs
    log = OurLog(shutil.copytree(place / "data", tmp_path / "data"))
    assert log.recovery.offline_dirs == ()
    assert {level: log.read(level) for level in read} == read
    headers = log.headers()
    kinds = Counter((header.is_control, header.delete_horizon_ms is not None) for header in headers)
    assert kinds[True, False] > 0
    assert len(headers) < 3 * ROUNDS * TRANSACTIONS / 2
    assert log.log.verify().findings == ()
    log.manager.close()


def test_we_go_on_with_what_kafka_compacted(theirs, ours):
    _, read = theirs
    _, left = ours
    clean = [record for record in left["read_uncommitted"] if record[0] <= read["read_uncommitted"][-1][0]]
    assert set(clean) < set(read["read_uncommitted"])
    assert left["read_committed"]
    assert set(left["read_committed"]) <= set(left["read_uncommitted"])


def test_kafkas_dump_tool_reads_what_we_compacted(any_kafka, ours):
    place, left = ours
    folder = place / "data" / FOLDER
    for suffix, options in (
        ("log", ("--deep-iteration", "--print-data-log")),
        ("index", ("--index-sanity-check",)),
        ("timeindex", ("--index-sanity-check",)),
        ("txnindex", ()),
        ("snapshot", ()),
    ):
        files = ",".join(str(path) for path in sorted(folder.glob(f"*.{suffix}")))
        assert files, suffix
        said = any_kafka.run(DUMP, "--files", files, *options)
        assert not COMPLAINTS.search(said), said
        if suffix == "log":
            offsets = [int(found) for found in RECORD.findall(said)]
            assert offsets == [record[0] for record in left["read_uncommitted"]]
            assert "endTxnMarker: COMMIT" in said


def test_kafka_adopts_what_we_compacted_and_goes_on(kafka, ours):
    place, left = ours
    with (
        EmbeddedZooKeeper(place / "zookeeper") as zookeeper,
        KafkaBroker(kafka, place / "data", zookeeper=zookeeper.address, properties=SETTINGS) as broker,
    ):
        producer = transactional(broker.bootstrap)
        found = {level: consumed(broker.bootstrap, level) for level in left}
        assert found["read_committed"][-1] == left["read_committed"][-1]
        assert {level: table(records) for level, records in found.items()} == {
            level: table(records) for level, records in left.items()
        }
        start = (ROUNDS + 1) * TRANSACTIONS
        write(broker.bootstrap, producer, range(start, start + TRANSACTIONS))
        await_compaction(place / "data")
        after = table(consumed(broker.bootstrap, "read_committed"))
        said = broker.read_log()
    expected = table([*left["read_committed"], *committed_by(range(start, start + TRANSACTIONS))])
    assert after == expected
    assert [line for line in said.splitlines() if re.search(r"(WARN|ERROR) kafka\.log", line) and FOLDER in line] == []


def committed_by(numbers):
    """What `write` leaves for a reader of committed records."""
    return [
        (-1, key, value_of(number))
        for number in numbers
        if number % 3
        for key in (b"key-%d" % (number % KEYS), b"both")
    ]
