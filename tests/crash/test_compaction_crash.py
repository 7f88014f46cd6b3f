"""The power is cut at every operation of a compaction: each key's last value is there, and the log is whole."""

import uuid
from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest

from millrace.errors import StorageError
from millrace.records.batch import walk
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, Log, LogCleaner, LogConfig, LogManager, TopicPartition
from millrace_broker.storage.segments.segment_swap import finish_swaps
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

T = TopicPartition("t", 0)
FOLDER = "/data/t-0"
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "350",
    "index.interval.bytes": "100",
    "file.delete.delay.ms": "0",
}
KEYS = 5
FLUSHED = 30
CONFIG = CleanerConfig(dedupe_buffer_bytes=24 * 7)


def open_store(fs: CrashFileSystem) -> tuple[LogManager, Log]:
    manager = LogManager(fs, ManualClock(), ["/data"], {}, "c" * 22, 1)
    manager.start()
    return manager, manager.create(T, uuid.UUID(int=1), COMPACT)


def put(log: Log, count: int) -> None:
    for offset in range(log.log_end_offset, log.log_end_offset + count):
        record = NewRecord(b"%d" % offset, key=b"%d" % (offset * 3 % KEYS), timestamp_ms=offset)
        log.append(encode_batch([record]), leader_epoch=0)


def filled() -> CrashFileSystem:
    """A log of which a part is compacted already, flushed but for its last records."""
    fs = CrashFileSystem()
    manager, log = open_store(fs)
    put(log, 16)
    LogCleaner(fs, ManualClock(), manager, CONFIG).run(force=True)
    put(log, FLUSHED - 16)
    log.flush()
    put(log, 3)
    return fs.after_kill()


GOOD = filled()


class Workload:
    """One compaction, with appends before and after."""

    def __init__(self, fs: CrashFileSystem) -> None:
        self.fs = fs
        self.is_open = False
        self.flushed = 0
        self.appended = 0

    def run(self) -> None:
        manager, log = open_store(self.fs)
        self.is_open = True
        self.flushed = self.appended = log.log_end_offset
        cleaner = LogCleaner(self.fs, ManualClock(), manager, CONFIG)
        (report,) = cleaner.run(force=True)
        assert report.error == ""
        manager.release_replaced()
        put(log, 1)
        self.appended += 1
        log.remove_deleted()
        log.flush()
        self.flushed = log.log_end_offset

    def each_change(self) -> Iterator[int]:
        """Yields the number of each change once the log is open."""
        return (number for number in self.fs.each_change(self.run) if self.is_open)


def check(fs: CrashFileSystem, at_least: int) -> None:
    manager, log = open_store(fs)
    assert log.log_end_offset >= at_least
    found, offset = {}, 0
    while data := log.read(offset, 1000, up_to_offset=log.log_end_offset):
        for record in decode_records(data):
            assert record.value == b"%d" % record.offset
            found[record.key] = record.offset
        offset = [header for _, header in walk(data)][-1].next_offset
    assert offset == log.log_end_offset
    assert found == {b"%d" % (offset * 3 % KEYS): offset for offset in range(offset - KEYS, offset)}
    assert log.verify().findings == ()
    assert not [name for name in fs.listdir(FOLDER) if name.endswith((".cleaned", ".swap", ".deleted"))]
    put(log, 2)
    (report,) = LogCleaner(fs, ManualClock(), manager, CONFIG).run(force=True)
    assert report.error == ""
    manager.close()
    assert fs.open_files == 0


@pytest.mark.soak(rounds=3, minutes=1.5)
def test_each_keys_last_value_survives_a_power_cut_at_any_operation(rounds, record_property) -> None:
    for seed in rounds:
        workload = Workload(GOOD.after_kill())
        for cut_at in workload.each_change():
            check(workload.fs.after_cut(Random(seed * 1000 + cut_at) if seed else None), FLUSHED)
    record_property("seeds", seed + 1)


def test_a_killed_process_loses_nothing_and_a_compaction_goes_on_after_it() -> None:
    workload = Workload(GOOD.after_kill())
    for _ in workload.each_change():
        check(workload.fs.after_kill(), workload.appended)


def test_without_checkpoints_nothing_is_lost() -> None:
    """A log whose folder was copied without the checkpoints is recovered from its first byte, with gaps or without."""
    workload = Workload(GOOD.after_kill())
    for _ in islice(workload.each_change(), 0, None, 3):
        fs = workload.fs.after_kill()
        for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
            if fs.exists(f"/data/{name}"):
                fs.unlink(f"/data/{name}")
        check(fs, workload.appended)


def test_a_value_stays_until_the_one_that_supersedes_it_is_on_the_disk() -> None:
    fs = CrashFileSystem()
    _, log = open_store(fs)
    put(log, 10)
    log.flush()
    flushed = fs.after_kill()
    for _ in flushed.each_change(lambda: compact_unflushed(flushed)):
        check(flushed.after_cut(), 10)


def compact_unflushed(fs: CrashFileSystem) -> None:
    manager, log = open_store(fs)
    put(log, 12)
    LogCleaner(fs, ManualClock(), manager, CONFIG).run(force=True)


def decided_swap() -> CrashFileSystem:
    """A crash right behind the sync of the name `.log.swap`."""
    workload = Workload(GOOD.after_kill())
    for _ in workload.each_change():
        fs = workload.fs.after_cut()
        if any(name.endswith(".log.swap") for name in fs.listdir(FOLDER)):
            return fs
    raise AssertionError("no crash left a decided swap")


def test_the_power_goes_again_at_every_operation_of_finishing_a_swap() -> None:
    fs = decided_swap()
    for cut_at in fs.each_change(lambda: finish_swaps(fs, FOLDER)):
        for seed in range(8):
            check(fs.after_cut(Random(seed * 1000 + cut_at)), FLUSHED)
    assert cut_at >= 5
    check(fs.after_kill(), FLUSHED)


def test_a_damaged_swap_leaves_the_old_segments(caplog: pytest.LogCaptureFixture) -> None:
    fs = decided_swap()
    (name,) = [name for name in fs.listdir(FOLDER) if name.endswith(".log.swap")]
    fd = fs.open(f"{FOLDER}/{name}")
    fs.pwritev(fd, [b"\xff"], fs.size(fd) - 1)
    fs.close(fd)
    check(fs, FLUSHED)
    assert "the compacted segment" in caplog.text


def compacted() -> CrashFileSystem:
    fs = CrashFileSystem()
    manager, log = open_store(fs)
    put(log, 30)
    LogCleaner(fs, ManualClock(), manager, CleanerConfig()).run(force=True)
    manager.close()
    return fs


def reopened(fs: CrashFileSystem, recovery_point: int) -> Log:
    config = LogConfig.from_properties({}, COMPACT)
    return Log(fs, ManualClock(), FOLDER, T, config, recovery_point=recovery_point)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_compacted_segments_index_is_built_anew(suffix: str) -> None:
    fs = compacted()
    for name in fs.listdir(FOLDER):
        if name.endswith(suffix):
            fs.unlink(f"{FOLDER}/{name}")
    check(fs, 30)


@pytest.mark.parametrize(("recovery_point", "log_end_offset"), [(0, 0), (30, 30)])
def test_a_compacted_segment_that_lost_its_tail_ends_the_log_unless_it_is_below_the_recovery_point(
    recovery_point: int, log_end_offset: int
) -> None:
    fs = compacted()
    fd = fs.open(f"{FOLDER}/{0:020d}.log")
    (only_batch,) = [header for _, header in walk(fs.pread(fd, 1000, 0))]
    assert only_batch.record_count == 0
    fs.truncate(fd, 0)
    fs.close(fd)
    assert reopened(fs, recovery_point).log_end_offset == log_end_offset


def test_a_gap_at_the_end_of_the_log_is_no_gap_of_compaction() -> None:
    fs = CrashFileSystem()
    manager, log = open_store(fs)
    put(log, 3)
    path = log.closed_segments[0].path if log.closed_segments else f"{FOLDER}/{0:020d}.log"
    manager.close()
    fd = fs.open(path)
    size = fs.size(fd) // 3
    fs.pwritev(fd, [(9).to_bytes(8, "big")], 2 * size)
    fs.close(fd)
    assert reopened(fs.after_kill(), 0).log_end_offset == 2
    assert reopened(fs.after_kill(), 10).log_end_offset == 10


def test_a_disk_that_fails_while_a_swap_is_finished_is_a_storage_error() -> None:
    fs = decided_swap()
    fs.fail("rename")
    with pytest.raises(StorageError):
        reopened(fs, FLUSHED)
