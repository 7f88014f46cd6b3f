"""The power is cut, or the process killed, at every operation of two moves between data folders: one log counts."""

import errno
import uuid
from random import Random

import pytest

from millrace.errors import StorageError
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.log_moves import finish_move

KEY, TOPIC_ID = TopicPartition("t", 0), uuid.UUID(int=1)
DIRS = ["/one", "/two"]
PROPERTIES = {"log.segment.bytes": "400", "log.flush.interval.messages": "1", "log.segment.delete.delay.ms": "0"}
UNLIMITED = 1e300


def manager(fs: CrashFileSystem) -> LogManager:
    return LogManager(fs, ManualClock(), DIRS, PROPERTIES, "cluster", 1)


def append(log: Log, count: int) -> None:
    for offset in range(log.log_end_offset, log.log_end_offset + count):
        records = [NewRecord(b"%d" % offset, timestamp_ms=1_700_000_000_000)]
        log.append(encode_batch(records, producer=BatchProducer(7, 0, offset)), leader_epoch=offset // 5)


def values(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while data := log.read(offset, 1 << 20, up_to_offset=log.log_end_offset):
        found += [record.value for record in decode_records(data) if record.offset >= offset]
        offset = log.log_start_offset + len(found)
    return found


def folders(fs: CrashFileSystem, *, copies: bool = True) -> list[str]:
    """Returns the folders that have the partition's name, but for those that are to be deleted."""
    names = [f"{parent}/{name}" for parent in DIRS for name in fs.listdir(parent) if name.startswith("t-0")]
    return [name for name in names if not name.endswith("-delete") and (copies or not name.endswith("-future"))]


class Life:
    """From place to place, with clean shutdowns between; `acknowledged` counts synced records."""

    def __init__(self, fs: CrashFileSystem, *places: str) -> None:
        self.fs = fs
        self.places = places
        self.acknowledged = 0
        self.start_offset = 0

    def run(self) -> None:
        for path in self.places:
            self.moved_to(path)

    def moved_to(self, path: str) -> None:
        logs = manager(self.fs)
        logs.start()
        log = logs.create(KEY, TOPIC_ID, {})
        self.append(log, 5)
        copy = logs.moves.begin(KEY, path)
        copy.catch_up(log, UNLIMITED)
        self.append(log, 2)
        copy.catch_up(log, UNLIMITED)
        self.append(log, 1)
        log.raise_log_start_offset(log.log_end_offset - 4)
        logs.checkpoint()
        self.start_offset = log.log_start_offset
        log = finish_move(logs, KEY)
        assert log.directory == f"{path}/t-0"
        self.append(log, 1)
        logs.remove_deleted()
        logs.checkpoint()
        logs.close()

    def append(self, log: Log, count: int) -> None:
        for _ in range(count):
            append(log, 1)
            self.acknowledged = log.log_end_offset


def check(after: CrashFileSystem, life: Life) -> None:
    named = folders(after, copies=False) if all(after.exists(path) for path in DIRS) else []
    assert len(named) <= 1
    logs = manager(after)
    logs.start()
    log = logs.create(KEY, TOPIC_ID, {})
    assert folders(after) == [log.directory]
    assert not named or named == [log.directory]
    assert log.log_end_offset >= life.acknowledged
    assert log.log_start_offset >= life.start_offset
    assert values(log) == [b"%d" % offset for offset in range(log.log_start_offset, log.log_end_offset)]
    assert log.producers.entries.keys() == ({7} if log.log_end_offset else set())
    start = log.log_start_offset
    expected = [(epoch, max(epoch * 5, start)) for epoch in range(start // 5, -(-log.log_end_offset // 5))]
    assert list(log.leader_epochs.entries) == expected
    append(log, 1)
    assert all(report.findings == () for report in logs.verify())
    logs.close()
    assert after.open_files == 0
    assert [name for parent in DIRS for name in after.listdir(parent) if name.endswith(("-future", "-delete"))] == []


@pytest.mark.soak(rounds=2, minutes=1)
def test_one_log_counts_after_a_power_cut_at_any_operation_of_a_move(rounds, record_property) -> None:
    for seed in rounds:
        fs = CrashFileSystem()
        life = Life(fs, "/two", "/one")
        for cut_at in fs.each_change(life.run):
            check(fs.after_cut(Random(seed * 1000 + cut_at) if seed else None), life)
        assert folders(fs) == ["/one/t-0"]
    record_property("seeds", seed + 1)


def test_one_log_counts_after_a_kill_at_any_operation_of_a_move() -> None:
    fs = CrashFileSystem()
    life = Life(fs, "/two")
    for _ in fs.each_change(life.run):
        check(fs.after_kill(), life)
    assert folders(fs) == ["/two/t-0"]


@pytest.mark.parametrize("operation", ["create", "pwritev", "fsync", "fsync_dir", "rename", "mkdir", "truncate"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_move_that_fails_at_any_operation_loses_nothing(operation: str, code: int) -> None:
    """Afterwards the log is served where it was, or its folder is offline, and the next start finds it once."""
    after = 0
    while move_with_failure(operation, after, code):
        after += 1
    assert after > 0


def move_with_failure(operation: str, after: int, code: int) -> bool:
    """Moves a log whose operation fails after so many successes; returns whether it came to the failure."""
    fs = CrashFileSystem()
    logs = manager(fs)
    logs.start()
    log = logs.create(KEY, TOPIC_ID, {})
    append(log, 6)
    fs.fail(operation, after=after, code=code)
    failed = False
    try:
        copy = logs.moves.begin(KEY, "/two")
        copy.catch_up(log, UNLIMITED)
        append(log, 2)
        finish_move(logs, KEY)
    except StorageError:
        failed = True
        if KEY in logs.moves.copies():
            logs.moves.drop(KEY)
    end = log.log_end_offset
    assert KEY not in logs.moves.copies()
    served = logs.logs()[KEY]
    assert values(served) == [b"%d" % offset for offset in range(end)]
    online = logs.by_data_dir()["/one" if served is log else "/two"] is not None
    if failed and online:
        append(served, 1)
        end += 1
    crashed = fs.after_kill()
    again = manager(crashed)
    again.start()
    found = again.logs()[KEY]
    assert values(found) == [b"%d" % offset for offset in range(end)]
    assert folders(crashed) == [found.directory]
    return failed or not online
