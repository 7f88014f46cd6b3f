"""A closed segment of a compacted log is cut while the broker is down, and the next start tells that.

Such a log may leave out offsets at the end of a segment, too, so what is cut would look like what compaction has
removed, and the newest values of keys be lost with it. The segment's indexes name what was there.
"""

from collections.abc import Callable

import pytest

from millrace.fs import read_file
from millrace.records.batch import NO_TIMESTAMP, walk
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.recovery.offset_gaps import ANYWHERE
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000
BATCHES, STEP, RECORDS = 24, 5, 3  # each batch has three of five offsets, the rest is left out
END = (BATCHES - 1) * STEP + RECORDS
CONFIG = LogConfig(
    segment_bytes=700, index_interval_bytes=250, retention_ms=-1, cleanup_policy="compact", file_delete_delay_ms=0,
    message_timestamp_difference_max_ms=1 << 62,
)  # fmt: skip

TIMES: dict[str, Callable[[int], int]] = {
    "rising": lambda offset: NOW_MS + offset,
    "equal": lambda _: NOW_MS,
    "falling": lambda offset: NOW_MS - offset,
    "none": lambda _: NO_TIMESTAMP,
}
STARTS: dict[str, dict[str, int | bool]] = {
    "clean": {"clean": True},
    "killed": {},
    "compacted here": {"clean": True, "first_dirty_offset": END},
    "killed and compacted here": {"first_dirty_offset": END},
}
GONE = {"nothing": (), "offset index": (".index",), "time index": (".timeindex",)}


def open_log(fs: CrashFileSystem, **state: int | bool) -> Log:
    return Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), CONFIG, **state)  # type: ignore[arg-type]


def batch(offset: int, time_of: Callable[[int], int]) -> bytes:
    offsets = range(offset, offset + RECORDS)
    records = [NewRecord(b"value", key=b"%d" % one, timestamp_ms=time_of(one)) for one in offsets]
    return bytes(encode_batch(records, base_offset=offset))


def followed(times: str) -> tuple[CrashFileSystem, list[int]]:
    """Returns the disk of a log that has followed a compacted one, and the base offsets of its segments."""
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    for number in range(BATCHES):
        log.append_as_follower(batch(number * STEP, TIMES[times]), leader_epoch=0, gapless_from=ANYWHERE)
    log.flush()
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    log.close()
    return fs, bases


def path_of(base_offset: int, suffix: str = ".log") -> str:
    return f"{FOLDER}/{base_offset:020d}{suffix}"


def cut(fs: CrashFileSystem, path: str, size_bytes: int) -> None:
    fd = fs.open(path)
    fs.truncate(fd, size_bytes)
    fs.fsync(fd)
    fs.close(fd)


def places(content: bytes) -> list[int]:
    """Every end of a batch in a segment but the last, its beginning, and a byte within each batch."""
    starts = [position for position, _ in walk(content)]
    return sorted({*starts, *(start + 40 for start in starts)})


def damage_of(log: Log) -> list[tuple[int, int]]:
    return [(one.start_offset, one.end_offset) for _, one in log.damage]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("start", STARTS)
def test_a_log_that_nobody_has_cut_has_no_damage(times: str, start: str) -> None:
    fs, bases = followed(times)
    log = open_log(fs, recovery_point=END, **STARTS[start])
    assert damage_of(log) == []
    assert [segment.base_offset for segment in log.segments][: len(bases)] == bases
    assert log.verify().findings == ()


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("start", STARTS)
def test_a_cut_segment_is_damaged(times: str, start: str, number: int, gone: str) -> None:
    fs, bases = followed(times)
    whole = fs.after_kill()
    path = path_of(bases[number])
    content = read_file(whole, path)
    headers = list(walk(content))
    assert len(headers) > 2
    newest = len(headers) - 1 if times == "rising" else 0  # the batch whose offset the time index names last
    for size_bytes in places(content):
        disk = whole.after_kill()
        cut(disk, path, size_bytes)
        for suffix in GONE[gone]:
            disk.unlink(path_of(bases[number], suffix))
        log = open_log(disk, recovery_point=END, **STARTS[start])
        left = [header for position, header in headers if position + header.size_bytes <= size_bytes]
        ends = left[-1].next_offset if left else bases[number]
        is_torn = size_bytes not in {position for position, _ in headers}
        found = damage_of(log)
        if is_torn or gone != "offset index" or len(left) <= newest:
            assert found == [(ends, bases[number + 1])], size_bytes
        assert log.log_end_offset == END
        log.close()
        again = open_log(disk.after_kill(), recovery_point=END, clean=True)
        assert damage_of(again) == found, size_bytes
