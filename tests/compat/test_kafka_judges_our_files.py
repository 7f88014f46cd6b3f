"""What Apache Kafka says of a folder that our broker wrote: its dump tool reads it, its broker adopts it."""

import re
import shutil

import pytest

from millrace.client import Cluster, SyncProducer
from millrace.errors import SetupError
from millrace.records.batch import walk
from millrace.records.checksum import crc32c
from millrace.records.compression import Codec
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper

TOPIC = "judged"
FOLDER = f"{TOPIC}-0"
SETTINGS = {
    "log.segment.bytes": "4000",
    "log.index.interval.bytes": "500",
    "log.retention.ms": "-1",
    "zookeeper.session.timeout.ms": "4000",
}
# Where no broker is killed: a session that is lost would bump the leader's epoch.
PATIENT = SETTINGS | {"zookeeper.session.timeout.ms": "45000"}
BATCHES = 60
RECORDS_PER_BATCH = 20
BASE_TIMESTAMP_MS = 1_700_000_000_000
DUMP = "kafka.tools.DumpLogSegments"
COMPLAINTS = re.compile(r"Mismatch|Found |Non-consecutive|isvalid: false|Exception|corrupt|failed", re.IGNORECASE)


def record(offset):
    """Different in every place, null where null may be; timestamps go back now and then."""
    key = None if offset % 7 == 0 else b"key-%d" % (offset % 100)
    value = None if offset % 11 == 0 and key is not None else b"value-%d-" % offset + b"x" * (offset % 50)
    headers = (("trace", b"%d" % offset), ("null", None)) if offset % 3 == 0 else ()
    return NewRecord(value, key, BASE_TIMESTAMP_MS + offset - 40 * (offset % 5 == 0), headers)


def expected(count):
    return [(o, r.timestamp_ms, r.key, r.value, r.headers) for o in range(count) for r in [record(o)]]


def produce(bootstrap, batches):
    with Cluster(bootstrap) as cluster:
        producer = SyncProducer(cluster)
        for number in batches:
            offsets = range(number * RECORDS_PER_BATCH, (number + 1) * RECORDS_PER_BATCH)
            producer.send(TOPIC, 0, [record(offset) for offset in offsets], codec=Codec(number % len(Codec)))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A data folder and its ZooKeeper's, written through a kill -9 and a clean stop."""
    place = tmp_path_factory.mktemp("written")
    with (
        EmbeddedZooKeeper(place / "zookeeper") as zookeeper,
        BrokerProcess(place / "data", zookeeper=zookeeper.address, properties=SETTINGS) as broker,
    ):
        produce(broker.bootstrap, range(BATCHES // 2))
        broker.kill()
        broker.start()
        produce(broker.bootstrap, range(BATCHES // 2, BATCHES))
        assert broker.stop() == 0
    return place


@pytest.fixture
def copy(written, tmp_path):
    """A copy of both folders, to be changed."""
    return shutil.copytree(written, tmp_path / "copy")


def files(place, suffix):
    return sorted((place / "data" / FOLDER).glob(f"*{suffix}"))


def joined(paths):
    return ",".join(map(str, paths))


def test_dump_reads_every_record(any_kafka, written):
    logs = files(written, ".log")
    assert len(logs) > 5
    dump = any_kafka.run(DUMP, "--deep-iteration", "--print-data-log", "--files", joined(logs))
    assert COMPLAINTS.search(dump) is None
    assert {header.codec_id for log in logs for _, header in walk(log.read_bytes())} == set(Codec)
    assert dump.count("isvalid: true") == BATCHES
    found = re.findall(r"^\| offset: (\d+) CreateTime: (\d+) .*?headerKeys: \[(.*?)\](.*)$", dump, re.MULTILINE)
    assert len(found) == BATCHES * RECORDS_PER_BATCH
    for number, (offset, timestamp, headers, rest) in enumerate(found):
        wanted = record(number)
        assert (int(offset), int(timestamp)) == (number, wanted.timestamp_ms)
        assert headers == ("trace,null" if wanted.headers else "")
        assert wanted.value is None or rest.endswith(f" payload: {wanted.value.decode()}")


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_dump_finds_the_indexes_sane(any_kafka, written, suffix, check):
    indexes = files(written, suffix)
    dump = any_kafka.run(DUMP, check, "--files", joined(indexes))
    assert COMPLAINTS.search(dump) is None
    if check == "--index-sanity-check":
        assert dump.count("passed sanity check") == len(indexes)


def test_dump_sees_a_damaged_index(kafka, copy):
    """The check above is one that can fail."""
    index = files(copy, ".index")[0]
    content = bytearray(index.read_bytes())
    content[-1] ^= 1
    index.write_bytes(content)
    with pytest.raises(SetupError, match=f"Dumping {index}\nException"):
        kafka.run(DUMP, "--verify-index-only", "--files", str(index))


def test_the_same_batches_make_the_same_files(kafka, tmp_path):
    """Byte for byte: segments, both indexes, epochs and checkpoints as Kafka writes them."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper:
        with KafkaBroker(
            kafka, tmp_path / "theirs", zookeeper=f"{zookeeper.address}/theirs", properties=PATIENT
        ) as their:
            produce(their.bootstrap, range(BATCHES))
        with BrokerProcess(tmp_path / "ours", zookeeper=f"{zookeeper.address}/ours", properties=PATIENT) as ours:
            produce(ours.bootstrap, range(BATCHES))
    compared = [".log", ".index", ".timeindex", "leader-epoch-checkpoint"]
    content = {
        side: {
            path.name: path.read_bytes()
            for suffix in compared
            for path in (tmp_path / side / FOLDER).glob(f"*{suffix}")
        }
        for side in ("theirs", "ours")
    }
    assert len(content["theirs"]) > 3 * 5
    assert content["ours"] == content["theirs"]
    starts = (tmp_path / "ours" / "log-start-offset-checkpoint").read_bytes()
    # Kafka leaves out those that begin with their first segment, and passes over the check.
    assert starts == b"0\n2\njudged 0 0\n. 0 %d\n" % crc32c(b"judged 0 0")
    for name in ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()


def adopt(kafka, place, read_all):
    """Kafka on our folders: what it serves, and what it says of the log."""
    with (
        EmbeddedZooKeeper(place / "zookeeper") as zookeeper,
        KafkaBroker(kafka, place / "data", zookeeper=zookeeper.address, properties=PATIENT) as broker,
    ):
        served = read_all(broker.bootstrap, TOPIC)
        produce(broker.bootstrap, [BATCHES])
        assert read_all(broker.bootstrap, TOPIC) == expected((BATCHES + 1) * RECORDS_PER_BATCH)
        broker.stop()
        return served, broker.read_log()


def test_kafka_adopts_a_cleanly_stopped_folder_as_it_is(kafka, copy, read_all):
    topic_id = (copy / "data" / FOLDER / "partition.metadata").read_bytes()
    served, said = adopt(kafka, copy, read_all)
    assert served == expected(BATCHES * RECORDS_PER_BATCH)
    assert "Skipping recovery of 1 logs" in said
    assert re.findall(r"(?:WARN|ERROR) kafka\.log.*", said) == []
    assert (copy / "data" / FOLDER / "partition.metadata").read_bytes() == topic_id


def test_kafka_recovers_a_folder_whose_broker_was_killed(kafka, copy, read_all):
    (copy / "data" / ".kafka_cleanshutdown").unlink()
    last = files(copy, ".log")[-1]
    with last.open("ab") as file:
        file.write(last.read_bytes()[:70])
    served, said = adopt(kafka, copy, read_all)
    assert served == expected(BATCHES * RECORDS_PER_BATCH)
    assert "Recovering 1 logs" in said


def test_our_broker_takes_back_a_folder_that_kafka_has_continued(kafka, copy, read_all):
    adopt(kafka, copy, read_all)
    with (
        EmbeddedZooKeeper(copy / "zookeeper") as zookeeper,
        BrokerProcess(copy / "data", zookeeper=zookeeper.address, properties=PATIENT) as broker,
    ):
        assert read_all(broker.bootstrap, TOPIC) == expected((BATCHES + 1) * RECORDS_PER_BATCH)
        produce(broker.bootstrap, [BATCHES + 1])
        assert read_all(broker.bootstrap, TOPIC) == expected((BATCHES + 2) * RECORDS_PER_BATCH)
