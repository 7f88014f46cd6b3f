"""Retention and searches for a timestamp do what the records say, whatever has become of a time index.

No checksum covers it. By its last entry retention would delete records that are younger, and by any other one a search
would pass over records. Every bit of every entry is flipped, runs of bytes are zeros, and the file is cut.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import ge

import pytest

from millrace.fs import read_file
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.recovery.offset_gaps import ANYWHERE
from millrace_broker.storage.segments import time_entries
from millrace_broker.storage.segments.indexes import TimeIndex
from millrace_broker.storage.segments.segment_sequence import facts_of
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000
BATCHES, RECORDS = 16, 3
END = BATCHES * RECORDS
CONFIG = LogConfig(
    segment_bytes=450, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=0,
    message_timestamp_difference_max_ms=1 << 62,
)  # fmt: skip
ROOMY = replace(CONFIG, segment_bytes=4000)
TIMES: dict[str, Callable[[int], int]] = {
    "rising": lambda offset: NOW_MS + offset * 1000,
    "mixed": lambda offset: NOW_MS + offset * 37 % END * 1000,
    "falling": lambda offset: NOW_MS - offset * 1000,
}
STARTS: dict[str, dict[str, int | bool]] = {"clean": {"clean": True}, "killed": {"recovery_point": END}}

Content = bytes
Damage = Callable[[Content], Iterator[Content]]


def with_flipped_bits(content: Content) -> Iterator[Content]:
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def with_zeros(content: Content) -> Iterator[Content]:
    for start in range(0, len(content), 5):
        for size in (1, 3, 8):
            zeros = bytes(len(content[start : start + size]))
            yield content[:start] + zeros + content[start + size :]


def cut_short(content: Content) -> Iterator[Content]:
    yield from (content[:end] for end in range(len(content)))


DAMAGE: dict[str, Damage] = {"flipped bits": with_flipped_bits, "zeros": with_zeros, "cut": cut_short}


def open_log(fs: CrashFileSystem, config: LogConfig = CONFIG, **state: int | bool) -> Log:
    return Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), config, **state)  # type: ignore[arg-type]


def batch_of(number: int, time_of: Callable[[int], int]) -> bytes:
    offsets = range(number * RECORDS, (number + 1) * RECORDS)
    records = [NewRecord(b"value", timestamp_ms=time_of(one)) for one in offsets]
    return bytes(encode_batch(records, base_offset=offsets[0]))


def written(times: str, config: LogConfig = CONFIG) -> CrashFileSystem:
    """Returns the disk of a log with several segments, or one that is roomy, all synced."""
    fs = fs_with_folder(FOLDER)
    log = open_log(fs, config)
    for number in range(BATCHES):
        log.append_as_follower(batch_of(number, TIMES[times]), leader_epoch=0, gapless_from=ANYWHERE)
    assert (len(log.segments) > 3) == (config is CONFIG)
    log.flush()
    log.close()
    return fs


def answers(log: Log, times: str) -> list[tuple[int, int] | None]:
    """Returns what a search finds for each timestamp, for one between two of them, and for the newest record."""
    moments = sorted(TIMES[times](offset) for offset in range(END))
    found = [log.offset_for_timestamp(moment + ahead) for moment in moments for ahead in (-1, 0)]
    return [*found, log.offset_of_max_timestamp()]


def put(fs: CrashFileSystem, path: str, content: Content) -> None:
    fd = fs.open(path)
    fs.truncate(fd, 0)
    fs.pwritev(fd, [content], 0)
    fs.fsync(fd)
    fs.close(fd)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("times", TIMES)
def test_searches_and_retention_go_by_the_times_of_the_records(times: str, kind: str, start: str) -> None:
    fs = written(times)
    log = open_log(fs, **STARTS[start])
    expected = answers(log, times)
    newest = [segment.max_timestamp for segment in log.segments]
    paths = [segment.time_index.path for segment in log.segments]
    log.close()
    for path in paths:
        content = read_file(fs, path)
        for damaged in DAMAGE[kind](content):
            put(fs, path, damaged)
            log = open_log(fs, **STARTS[start])
            kept_for = [facts_of(segment).max_timestamp for segment in log.segments]
            assert all(map(ge, kept_for, newest)), (path, damaged)
            assert answers(log, times) == expected, (path, damaged)
            assert [segment.max_timestamp for segment in log.segments] == newest, (path, damaged)
            log.close()
        put(fs, path, content)


@pytest.mark.parametrize("most_read_bytes", [0, 1 << 20], ids=["another segment begins", "the segment is read"])
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("times", TIMES)
def test_later_appends_hide_no_entry_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, times: str, kind: str, most_read_bytes: int
) -> None:
    monkeypatch.setattr(time_entries, "MOST_READ_BYTES", most_read_bytes)
    expected: list[tuple[int, int] | None] = []
    fs = written(times, ROOMY)
    log = open_log(fs, ROOMY, **STARTS["clean"])
    path, newest = log.segments.active.time_index.path, log.segments.active.max_timestamp
    log.close()
    content = read_file(fs, path)
    for damaged in (content, *DAMAGE[kind](content)):
        again = fs.after_kill()
        put(again, path, damaged)
        log = open_log(again, ROOMY, **STARTS["clean"])
        for number in range(BATCHES, BATCHES + 3):
            older = batch_of(number, lambda _: newest - 1)
            log.append_as_follower(older, leader_epoch=0, gapless_from=ANYWHERE)
        log.flush()
        log.close()
        log = open_log(again, ROOMY, clean=True)
        expected = expected or answers(log, times)
        assert answers(log, times) == expected, damaged
        log.close()


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("times", TIMES)
def test_a_segment_that_is_cut_gets_the_times_of_its_records(
    monkeypatch: pytest.MonkeyPatch, times: str, kind: str
) -> None:
    monkeypatch.setattr(time_entries, "MOST_READ_BYTES", 0)
    expected: list[tuple[int, int] | None] = []
    fs = written(times, ROOMY)
    log = open_log(fs, ROOMY, **STARTS["clean"])
    path = log.segments.active.time_index.path
    log.close()
    content = read_file(fs, path)
    for damaged in (content, *DAMAGE[kind](content)):
        again = fs.after_kill()
        put(again, path, damaged)
        log = open_log(again, ROOMY, **STARTS["clean"])
        log.truncate_to(END - RECORDS)
        log.flush()
        log.close()
        log = open_log(again, ROOMY, clean=True)
        expected = expected or answers(log, times)
        assert answers(log, times) == expected, damaged
        log.close()


def batches_named(content: Content) -> list[tuple[int, int]]:
    """Returns each entry's timestamp and the number of its batch, as an entry may name any offset of a batch."""
    return [(timestamp, offset // RECORDS) for timestamp, offset in TimeIndex.ENTRY.iter_unpack(content)]


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("times", TIMES)
def test_the_scrubber_makes_a_time_index_as_it_was(times: str, kind: str) -> None:
    fs = written(times)
    log = open_log(fs, **STARTS["clean"])
    path = log.segments[1].time_index.path
    log.close()
    content = read_file(fs, path)
    for damaged in DAMAGE[kind](content):
        put(fs, path, damaged)
        log = open_log(fs, **STARTS["clean"])
        for segment in log.segments:
            log.scrub(segment, lambda _: None)
        assert batches_named(read_file(fs, path)) == batches_named(content), damaged
        log.close()
