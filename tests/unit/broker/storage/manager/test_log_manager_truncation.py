"""The manager truncates logs so that a crash at any operation keeps what the checkpoints promise."""

import uuid
from random import Random

import pytest

from millrace.errors import StorageError
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_broker.storage.checkpoints import read_offsets
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, PowerCutError

LEFT, RIGHT, OTHER = TopicPartition("left", 0), TopicPartition("right", 0), TopicPartition("other", 0)
DIRS = ["/one", "/two"]


def start(fs: CrashFileSystem) -> LogManager:
    logs = LogManager(fs, ManualClock(), DIRS, {"log.segment.bytes": "400"}, "c" * 22, 1)
    logs.start()
    return logs


def append(log: Log, end: int, letter: bytes) -> None:
    for offset in range(log.log_end_offset, end):
        log.append(encode_batch([NewRecord(b"%d%b" % (offset, letter))]), leader_epoch=0)


def filled(fs: CrashFileSystem) -> LogManager:
    logs = start(fs)
    for key in (LEFT, RIGHT, OTHER):
        append(logs.create(key, uuid.uuid5(uuid.NAMESPACE_DNS, key.topic), {}), 40, b"")
        logs.get(key).flush()
    logs.checkpoint()
    logs.checkpoint_high_watermarks(dict.fromkeys((LEFT, RIGHT, OTHER), 40))
    return logs


def values(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while data := log.read(offset, 1000, up_to_offset=log.log_end_offset):
        records = [record for record in decode_records(data) if record.offset >= offset]
        found += [record.value for record in records]
        offset = records[-1].offset + 1
    return found


def checkpoint(fs: CrashFileSystem, name: str) -> dict[TopicPartition, int]:
    return {key: offset for folder in DIRS for key, offset in read_offsets(fs, f"{folder}/{name}").items()}


def test_checkpoints_say_nothing_above_the_offsets() -> None:
    fs = CrashFileSystem()
    logs = filled(fs)
    logs.truncate_to({LEFT: 13, RIGHT: 20, OTHER: 40})
    assert [logs.get(key).log_end_offset for key in (LEFT, RIGHT, OTHER)] == [13, 20, 40]
    expected = {LEFT: 13, RIGHT: 20, OTHER: 40}
    assert checkpoint(fs, "recovery-point-offset-checkpoint") == expected
    assert checkpoint(fs, "replication-offset-checkpoint") == expected
    assert [logs.checkpoints.high_watermark(key) for key in expected] == [13, 20, 40]


def test_a_log_start_offset_is_lowered_too() -> None:
    fs = CrashFileSystem()
    logs = filled(fs)
    log = logs.get(LEFT)
    log.raise_log_start_offset(22)
    logs.checkpoint()
    logs.truncate_fully_and_start_at(LEFT, 7)
    append(log, 12, b"!")
    log.flush()
    again = start(fs.after_cut())
    assert (again.get(LEFT).log_start_offset, again.get(LEFT).log_end_offset) == (7, 12)
    assert values(again.get(LEFT)) == [b"%d!" % offset for offset in range(7, 12)]


def test_nothing_to_cut_writes_nothing() -> None:
    fs = CrashFileSystem()
    logs = filled(fs)
    before = fs.operations
    logs.truncate_to({LEFT: 40, RIGHT: 99})
    assert fs.operations == before


def test_a_log_that_can_not_be_cut_leaves_the_others_cut() -> None:
    fs = CrashFileSystem()
    logs = filled(fs)
    logs.get(LEFT).abandon()
    with pytest.raises(StorageError, match="closed"):
        logs.truncate_to({LEFT: 13, RIGHT: 20})
    assert logs.get(RIGHT).log_end_offset == 20


def test_a_checkpoint_that_can_not_be_written_leaves_the_log_whole() -> None:
    fs = CrashFileSystem()
    logs = filled(fs)
    fs.fail("pwritev")
    with pytest.raises(StorageError):
        logs.truncate_to({LEFT: 13})
    assert logs.get(LEFT).log_end_offset == 40


def test_what_was_cut_never_comes_back_whatever_the_checkpoints_were() -> None:
    """The log grows above the offset where it was cut, and is not flushed there: a start walks all of that."""
    good = CrashFileSystem()
    filled(good)
    first = start(good.after_kill()).get(LEFT)
    assert first is not None
    for seed, cut_at in ((seed, cut_at) for seed in range(2) for cut_at in range(1, 130, 3)):
        fs = good.after_kill()
        logs = start(fs)
        cut = False
        fs.cut_power_at(fs.operations + cut_at)
        try:
            logs.truncate_to({LEFT: 13})
            cut = True
            append(logs.get(LEFT), 45, b"!")
        except PowerCutError:
            pass
        log = start(fs.after_cut(Random(seed * 1000 + cut_at) if seed else None)).get(LEFT)
        old = [b"%d" % offset for offset in range(40)]
        new = old[:13] + [b"%d!" % offset for offset in range(13, 45)]
        found = values(log)
        assert found == new[: len(found)] or (not cut and found == old[: len(found)])
        assert len(found) >= 13
        assert log.verify().findings == ()
