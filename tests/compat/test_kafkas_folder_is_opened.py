"""Our broker on a folder that Apache Kafka wrote: every record is served, whatever else lies around in it."""

import re
import shutil

import pytest
from confluent_kafka import Producer

from millrace.client import Admin, Cluster, SyncProducer
from millrace.errors import SetupError
from millrace.fs import OsFileSystem
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker, await_markers
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_broker.storage.recovery.offline_logs import check_segment, find_segments

TOPIC = "moved"
FOLDER = f"{TOPIC}-0"
TOPIC_CONFIG = {"compression.type": "producer", "retention.ms": "-1", "segment.jitter.ms": "0"}
SETTINGS = {
    "log.segment.bytes": "20000",
    "log.index.interval.bytes": "500",
    "log.retention.ms": "-1",
    "zookeeper.session.timeout.ms": "4000",
}
RECORDS_PER_CODEC = 500
BASE_TIMESTAMP_MS = 1_700_000_000_000
CODECS = [codec.name.lower() for codec in Codec]


def record(index):
    headers = [("trace", b"%d" % index), ("null", None)] if index % 3 == 0 else []
    return BASE_TIMESTAMP_MS + index, b"key-%d" % index, b"value-%d-" % index + b"x" * (index % 50), tuple(headers)


def produce(bootstrap, numbers, settings):
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 50, "log_level": 0}
        | settings
    )
    transactional = "transactional.id" in settings
    if transactional:
        producer.init_transactions(60)
        producer.begin_transaction()
    for index in numbers:
        timestamp, key, value, headers = record(index)
        producer.produce(TOPIC, value, key, 0, timestamp=timestamp, headers=list(headers))
    assert producer.flush(60) == 0
    if transactional:
        producer.abort_transaction(60)
        await_markers(bootstrap, TOPIC)


def fill(bootstrap):
    """Idempotent batches of every codec, then a transaction that is aborted."""
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, 1, config=TOPIC_CONFIG)
    for number, codec in enumerate(CODECS):
        indexes = range(number * RECORDS_PER_CODEC, (number + 1) * RECORDS_PER_CODEC)
        produce(bootstrap, indexes, {"compression.type": codec})
    total = len(CODECS) * RECORDS_PER_CODEC
    produce(bootstrap, range(total, total + RECORDS_PER_CODEC), {"transactional.id": "aborts"})
    return total + RECORDS_PER_CODEC


@pytest.fixture(scope="module")
def written(kafka, tmp_path_factory):
    """The folders after a clean stop and after a kill -9, with their ZooKeeper's, and how many records they hold."""
    place = tmp_path_factory.mktemp("kafka")
    with (
        EmbeddedZooKeeper(place / "zookeeper") as zookeeper,
        KafkaBroker(kafka, place / "data", zookeeper=zookeeper.address, properties=SETTINGS) as broker,
    ):
        count = fill(broker.bootstrap)
        broker.stop()
        shutil.copytree(place / "data", place / "stopped")
        broker.start()
        produce(broker.bootstrap, range(count, 2 * count), {"compression.type": "zstd"})
        broker.kill()
        (place / "data").rename(place / "killed")
    return place, {"stopped": count, "killed": 2 * count}


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_every_record_is_served(written, ending, tmp_path, read_all):
    place, counts = written
    data = shutil.copytree(place / ending, tmp_path / "data")
    logs = sorted((data / FOLDER).glob("*.log"))
    assert len(logs) > 3
    headers = [header for log in logs for _, header in walk(log.read_bytes())]
    assert {header.codec_id for header in headers} == set(Codec)
    assert any(header.is_control for header in headers)
    assert any(index.stat().st_size for index in (data / FOLDER).glob("*.txnindex"))
    shutil.copytree(place / "zookeeper", tmp_path / "zookeeper")
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        BrokerProcess(data, zookeeper=zookeeper.address, properties=SETTINGS) as broker,
    ):
        assert [found[1:] for found in read_all(broker.bootstrap, TOPIC)] == [
            record(index) for index in range(counts[ending])
        ]
        assert broker.stop() == 0
        assert [line for line in broker.read_log().splitlines() if FOLDER in line and "ERROR" in line] == []


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_kafka_takes_back_what_we_went_on_with(kafka, written, ending, tmp_path, read_all):
    """Behind an idempotent producer's batches and a transaction's marker, which its snapshots must agree with."""
    place, counts = written
    count = counts[ending]
    data = shutil.copytree(place / ending, tmp_path / "data")
    shutil.copytree(place / "zookeeper", tmp_path / "zookeeper")
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper:
        with (
            BrokerProcess(data, zookeeper=zookeeper.address, properties=SETTINGS) as ours,
            Cluster(ours.bootstrap) as cluster,
        ):
            read_all(ours.bootstrap, TOPIC)  # waits until the partition is led
            for index in range(count, count + 500):
                timestamp, key, value, headers = record(index)
                SyncProducer(cluster).send(TOPIC, 0, [NewRecord(value, key, timestamp, headers)])
            assert ours.stop() == 0
        with KafkaBroker(kafka, data, zookeeper=zookeeper.address, properties=SETTINGS) as theirs:
            produce(theirs.bootstrap, range(count + 500, count + 1000), {"compression.type": "lz4"})
            assert [found[1:] for found in read_all(theirs.bootstrap, TOPIC)] == [
                record(index) for index in range(count + 1000)
            ]
            said = theirs.read_log()
    assert [line for line in said.splitlines() if re.search(r"(WARN|ERROR) kafka\.log", line) and FOLDER in line] == []
    assert re.search(f"partition={FOLDER}.*Recovering unflushed segment", said) is None


def test_what_was_stopped_cleanly_is_taken_over_unchanged(written, tmp_path):
    place, _ = written
    data = shutil.copytree(place / "stopped", tmp_path / "data")
    shutil.copytree(place / "zookeeper", tmp_path / "zookeeper")
    before = {path.name: path.read_bytes() for path in (data / FOLDER).glob("*.*") if path.suffix != ".snapshot"}
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        BrokerProcess(data, zookeeper=zookeeper.address, properties=SETTINGS) as broker,
    ):
        assert broker.stop() == 0
    after = {path.name: path.read_bytes() for path in (data / FOLDER).glob("*.*") if path.suffix != ".snapshot"}
    assert after == before


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_an_offline_check_finds_it_whole(written, ending):
    place, _ = written
    fs = OsFileSystem()
    reports = [check_segment(fs, log) for log in find_segments(fs, str(place / ending))]
    assert len(reports) > 3
    assert [finding for report in reports for finding in report.findings] == []


def test_a_folder_is_open_to_one_broker_of_either_kind(kafka, tmp_path):
    data = tmp_path / "data"
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper:
        theirs = KafkaBroker(kafka, data, zookeeper=zookeeper.address, properties=SETTINGS)
        with theirs, pytest.raises(SetupError, match="another broker holds this folder"):
            BrokerProcess(data, zookeeper=zookeeper.address, broker_id=1)
        ours = BrokerProcess(data, zookeeper=zookeeper.address, broker_id=1)
        with ours, pytest.raises(SetupError, match="Failed to acquire lock on file"):
            KafkaBroker(kafka, data, zookeeper=zookeeper.address, properties=SETTINGS)
