"""A log is cut where its batches say, whatever a damaged offset index says.

The matrix: every third bit of each entry of a segment's index is wrong; the log is cut at a batch's end, or in one.
"""

from collections.abc import Callable

import pytest

from millrace.fs import read_file
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder

FOLDER = "/data/t-0"
INDEX = f"{FOLDER}/00000000000000000000.index"
NOW_MS = 1_700_000_000_000
BATCHES, RECORDS = 6, 3
ENTRY_BYTES = 8


def put(fs: CrashFileSystem, path: str, content: bytes) -> None:
    fd = fs.open(path, create=True)
    fs.truncate(fd, len(content))
    fs.pwritev(fd, [content], 0)
    fs.close(fd)


def flip(fs: CrashFileSystem, path: str, bit: int) -> None:
    data = bytearray(read_file(fs, path))
    data[bit // 8] ^= 1 << bit % 8
    put(fs, path, bytes(data))


def batch(first: int) -> bytes:
    records = [NewRecord(b"value %03d" % each, timestamp_ms=NOW_MS) for each in range(first, first + RECORDS)]
    return bytes(encode_batch(records, base_offset=first))


def opened(fs: CrashFileSystem, batches: int, **state: int | bool) -> Log:
    """Returns the log with so many batches; BATCHES of them fill a segment."""
    config = LogConfig(segment_bytes=BATCHES * len(batch(0)), index_interval_bytes=1, retention_ms=-1)
    log = Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), config, **state)  # type: ignore[arg-type]
    for first in range(log.log_end_offset, batches * RECORDS, RECORDS):
        log.append(batch(first), leader_epoch=0)
    log.flush()
    return log


def damaged_while_closed(fs: CrashFileSystem, bit: int) -> Log:
    """Returns a log whose index was damaged before it was opened, and is in memory now."""
    log = opened(fs, BATCHES)
    log.close()
    flip(fs, INDEX, bit)
    return opened(fs, BATCHES, clean=True, recovery_point=BATCHES * RECORDS)


def damaged_while_open(fs: CrashFileSystem, bit: int) -> Log:
    """Returns a log with a sealed segment, whose index is searched in the damaged file."""
    log = opened(fs, BATCHES + 1)
    assert len(log.segments) == 2
    flip(fs, INDEX, bit)
    return log


def entries() -> int:
    fs = fs_with_folder(FOLDER)
    opened(fs, BATCHES).close()
    return len(read_file(fs, INDEX)) // ENTRY_BYTES


@pytest.mark.parametrize("bit", range(0, ENTRY_BYTES * 8, 3))
@pytest.mark.parametrize("entry", range(entries()))
@pytest.mark.parametrize("offset", [RECORDS, 4 * RECORDS, 5 * RECORDS + 2])
@pytest.mark.parametrize("damaged", [damaged_while_closed, damaged_while_open])
def test_a_damaged_entry_does_not_move_the_cut(
    damaged: Callable[[CrashFileSystem, int], Log], entry: int, bit: int, offset: int
) -> None:
    fs = fs_with_folder(FOLDER)
    log = damaged(fs, entry * ENTRY_BYTES * 8 + bit)
    path = log.segments[0].path
    whole = read_file(fs, path)
    assert log.truncate_to(offset)
    assert log.log_end_offset == offset // RECORDS * RECORDS
    cut = read_file(fs, path)
    assert cut == whole[: log.log_end_offset // RECORDS * len(batch(0))]
    assert log.damage == []
