"""At the end of mirroring a log forgets the producers before it, however it is opened, cut or compacted."""

from uuid import UUID

import pytest

from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.control import ControlType, EndTransactionMarker, encode_marker, encode_mirror_end
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.compacted_logs import Store
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000
BEFORE, AFTER = 7, 8
END = 6  # where the mirroring ends


def at(offset: int, data: bytes) -> bytes:
    return offset.to_bytes(8, "big") + data[8:12] + bytes(4) + data[16:]


def data(offset: int, producer_id: int, sequence: int) -> bytes:
    record = NewRecord(b"value", key=b"key %d" % offset, timestamp_ms=NOW_MS)
    return at(offset, encode_batch([record], producer=BatchProducer(producer_id, 0, sequence)))


def mirror_end(offset: int) -> bytes:
    return at(offset, encode_mirror_end(UUID(int=1), timestamp_ms=NOW_MS))


BATCHES = [
    *(data(offset, BEFORE, offset) for offset in range(END)),
    mirror_end(END),
    *(data(offset, AFTER, offset - END - 1) for offset in range(END + 1, 12)),
]


def opened(fs: CrashFileSystem, segment_bytes: int = 1 << 20, *, clean: bool = False) -> Log:
    config = LogConfig(segment_bytes=segment_bytes, retention_ms=-1)
    return Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), config, clean=clean)


def filled(fs: CrashFileSystem, segment_bytes: int = 1 << 20) -> Log:
    log = opened(fs, segment_bytes)
    for batch in BATCHES:
        log.append_as_follower(batch, leader_epoch=0)
    return log


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300, 100])
@pytest.mark.parametrize("clean", [True, False])
def test_only_the_producers_behind_it_are_known(segment_bytes, clean):
    fs = fs_with_folder(FOLDER)
    log = filled(fs, segment_bytes)
    assert log.producers.entries.keys() == {AFTER}
    log.close()
    assert opened(fs, segment_bytes, clean=clean).producers.entries.keys() == {AFTER}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("end_offset", [12, 9, END + 1, END, 3])
def test_a_log_that_is_cut_after_a_start_knows_what_is_left(end_offset, clean):
    """The snapshot of a clean stop has nobody of before, and does not say whom it lacks."""
    fs = fs_with_folder(FOLDER)
    filled(fs).close()
    log = opened(fs, clean=clean)
    log.truncate_to(end_offset)
    expected = {BEFORE} if end_offset <= END else {AFTER} if end_offset > END + 1 else set()
    assert log.producers.entries.keys() == expected


def test_a_log_that_ends_with_it_is_cut_after_a_clean_stop():
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    log.truncate_to(END + 1)
    log.close()
    log = opened(fs, clean=True)
    assert log.producers.entries == {}
    log.truncate_to(END)
    assert log.producers.entries.keys() == {BEFORE}


def test_a_transaction_that_was_aborted_before_it_stays_aborted():
    log = opened(fs_with_folder(FOLDER))
    record = NewRecord(b"never", timestamp_ms=NOW_MS)
    producer = BatchProducer(BEFORE, 3, 0)
    log.append_as_follower(encode_batch([record], producer=producer, flags=TRANSACTIONAL_FLAG), leader_epoch=0)
    assert log.last_stable_offset(1) == 0
    abort = EndTransactionMarker(ControlType.ABORT, 0)
    marker = encode_marker(abort, producer_id=BEFORE, producer_epoch=3, timestamp_ms=NOW_MS)
    log.append_as_follower(at(1, marker) + mirror_end(2), leader_epoch=0)
    assert [one[:3] for one in log.aborted_transactions(0, 3)] == [(BEFORE, 0, 1)]
    assert log.last_stable_offset(2) == 2
    assert log.producers.entries == {}


def test_compaction_keeps_it_and_drops_what_bore_state_before_it():
    store = Store()
    log = store.log(segment_bytes="100")
    for batch in BATCHES[: END + 1]:
        log.append_as_follower(batch, leader_epoch=0)
    for offset in range(END + 1, 20):
        newest = encode_batch([NewRecord(b"new", key=b"key %d" % (offset % END), timestamp_ms=NOW_MS)])
        log.append_as_follower(at(offset, newest), leader_epoch=0)
    store.compact()
    headers = [header for segment in log.segments for _, header in walk(segment.read_at(0, segment.size_bytes))]
    assert END in [header.base_offset for header in headers if header.is_control]
    assert BEFORE not in {header.producer_id for header in headers}
    store.manager.close()
    for name in store.fs.listdir(log.directory):
        if name.endswith(".snapshot"):
            store.fs.unlink(f"{log.directory}/{name}")
    again = Store(store.fs).log(segment_bytes="100")
    assert again.producers.entries == {}
    assert again.verify().findings == ()
