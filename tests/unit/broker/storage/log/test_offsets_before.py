from pathlib import Path

import pytest

from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.log.log_reader import EARLIEST, LATEST, offsets_before
from millrace_support.clock import ManualClock

STARTS = [(0, 900), (42, 1000), (100, 1100), (117, 5000)]
ENDS_EMPTY = [*STARTS[:-1], (117, 1200)]  # the newest segment is empty


@pytest.mark.parametrize(
    ("timestamp_ms", "max_count", "expected"),
    [
        (LATEST, 1, [117]),
        (LATEST, 10, [117, 100, 42, 0]),
        (LATEST, 2, [117, 100]),
        (LATEST, 0, []),
        (EARLIEST, 10, [0]),
        (1050, 10, [42, 0]),
        (1000, 10, [42, 0]),
        (1000, 1, [42]),
        (999, 10, [0]),
        (899, 10, []),
        (1300, 2, [100, 42]),
        (5000, 2, [117, 100]),
    ],
)
def test_offsets_go_backwards_from_the_newest_not_after_a_time(
    timestamp_ms: int, max_count: int, expected: list[int]
) -> None:
    assert offsets_before(STARTS, timestamp_ms, max_count, 117) == expected


def test_the_end_has_the_time_of_an_empty_segment() -> None:
    assert offsets_before(ENDS_EMPTY, 1300, 2, 117) == [117, 100]


@pytest.mark.parametrize(
    ("timestamp_ms", "max_count", "up_to_offset", "expected"),
    [
        (LATEST, 10, 110, [110, 100, 42, 0]),
        (LATEST, 10, 100, [100, 100, 42, 0]),
        (LATEST, 10, 60, [60, 42, 0]),
        (LATEST, 1, 60, [60]),
        (LATEST, 2, 60, [60]),
        (1100, 2, 60, [60, 42]),
        (1000, 10, 60, [42, 0]),
        (EARLIEST, 10, 60, [0]),
    ],
)
def test_the_high_watermark_stands_for_what_is_above(
    timestamp_ms: int, max_count: int, up_to_offset: int, expected: list[int]
) -> None:
    """With the twice told offset and the missing ones that Kafka's rule gives, too."""
    assert offsets_before(STARTS, timestamp_ms, max_count, up_to_offset) == expected


@pytest.fixture
def log(tmp_path: Path) -> Log:
    def batch(timestamp_ms: int) -> bytes:
        return encode_batch([NewRecord(b"v", timestamp_ms=timestamp_ms), NewRecord(b"v", timestamp_ms=50)])

    config = LogConfig(segment_bytes=2 * len(batch(500)))
    log = Log(OsFileSystem(), ManualClock(1000), str(tmp_path), TopicPartition("t", 0), config)
    for timestamp_ms in (100, 200, 300, 400, 500):
        log.append(batch(timestamp_ms), leader_epoch=0)
    return log


def test_a_log_answers_with_its_segments(log: Log) -> None:
    assert log.offsets_before(LATEST, 10) == [10, 8, 4, 0]
    assert log.offsets_before(450, 10) == [4, 0]
    log.raise_log_start_offset(3)
    assert log.offsets_before(EARLIEST, 10) == [3]
    assert log.offsets_before(LATEST, 10) == [10, 8, 4, 3]
    assert log.offsets_before(LATEST, 10, up_to_offset=6) == [6, 4, 3]


def test_the_largest_timestamp_may_lie_below_the_start_in_its_own_batch(log: Log) -> None:
    log.raise_log_start_offset(8)
    assert log.offset_of_max_timestamp() == (500, 8)
    log.raise_log_start_offset(9)
    assert log.offset_of_max_timestamp() == (50, 9)
    log.raise_log_start_offset(10)
    assert log.offset_of_max_timestamp() is None
