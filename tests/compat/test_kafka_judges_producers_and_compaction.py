"""What Apache Kafka's dump tool says of producer snapshots, transaction indexes, markers and a compacted log."""

import re
from uuid import uuid4

import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import CleanerConfig, Log, LogCleaner, LogConfig, LogManager, TopicPartition
from millrace_support.markers import append_marker

DUMP = "kafka.tools.DumpLogSegments"
COMPLAINTS = re.compile(r"Mismatch|Found |Non-consecutive|isvalid: false|Exception|corrupt|failed", re.IGNORECASE)
PRODUCER_ID, EPOCH = 7, 3


@pytest.fixture
def folder(tmp_path):
    """A log with an idempotent producer's batches, an aborted transaction and a committed one."""
    directory = tmp_path / "judged-0"
    directory.mkdir()
    log = Log(OsFileSystem(), SystemClock(), str(directory), TopicPartition("judged", 0), LogConfig())
    for sequence, control_type in ((0, ControlType.ABORT), (1, ControlType.COMMIT)):
        batch = encode_batch(
            [NewRecord(b"v", b"k", 1_700_000_000_000)],
            producer=BatchProducer(PRODUCER_ID, EPOCH, sequence),
            flags=TRANSACTIONAL_FLAG,
        )
        log.append(batch, leader_epoch=0)
        marker = EndTransactionMarker(control_type, 5)
        append_marker(log, marker, producer_id=PRODUCER_ID, producer_epoch=EPOCH, leader_epoch=0)
    log.close()
    return directory


def dump(kafka, files, *options):
    said = kafka.run(DUMP, "--files", ",".join(map(str, files)), *options)
    assert not COMPLAINTS.search(said), said
    return said


def test_markers_and_the_transaction_index_are_read(any_kafka, folder):
    said = dump(any_kafka, sorted(folder.glob("*.log")), "--deep-iteration", "--print-data-log")
    assert "endTxnMarker: ABORT coordinatorEpoch: 5" in said
    assert "endTxnMarker: COMMIT coordinatorEpoch: 5" in said
    said = dump(any_kafka, sorted(folder.glob("*.txnindex")))
    assert re.search(rf"producerId: {PRODUCER_ID} firstOffset: 0 lastOffset: 1\b", said), said


def test_a_producer_snapshot_is_read(any_kafka, folder):
    said = dump(any_kafka, sorted(folder.glob("*.snapshot")))
    assert re.search(rf"producerId: {PRODUCER_ID} producerEpoch: {EPOCH} coordinatorEpoch: 5", said), said
    assert "lastSequence: 1" in said


def test_a_compacted_log_is_read_deeply_and_its_indexes_are_sane(any_kafka, tmp_path):
    manager = LogManager(OsFileSystem(), SystemClock(), [str(tmp_path)], {}, "A" * 22, 1)
    manager.start()
    settings = {"cleanup.policy": "compact", "segment.bytes": "4000", "index.interval.bytes": "500"}
    log = manager.create(TopicPartition("judged", 0), uuid4(), settings)
    for number in range(200):
        value = None if number % 50 == 0 else b"value-%d" % number
        log.append(encode_batch([NewRecord(value, b"key-%d" % (number % 40), 1_700_000_000_000)]), leader_epoch=0)
    (report,) = LogCleaner(OsFileSystem(), SystemClock(), manager, CleanerConfig()).run(force=True)
    assert report.records_dropped > 0
    manager.close()
    folder = tmp_path / "judged-0"
    dump(any_kafka, sorted(folder.glob("*.log")), "--deep-iteration", "--print-data-log")
    dump(any_kafka, sorted(folder.glob("*.index")), "--index-sanity-check")
    dump(any_kafka, sorted(folder.glob("*.timeindex")), "--index-sanity-check")
