"""Retention is a pure choice: no file is needed to test it."""

from dataclasses import replace

import pytest

from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.retention import LogFacts, SegmentFacts, deletable, policies_of

OLD, BIG, BELOW = "older than retention.ms", "above retention.bytes", "below the log start offset"


def segments(*max_timestamps: int, size_bytes: int = 100) -> list[SegmentFacts]:
    return [
        SegmentFacts(
            base_offset=10 * slot, next_offset=10 * slot + 10, size_bytes=size_bytes, max_timestamp=max_timestamp
        )
        for slot, max_timestamp in enumerate(max_timestamps)
    ]


def choose(
    facts: list[SegmentFacts], *, log_start_offset: int = 0, up_to_offset: int = 1000, **config: int
) -> list[str]:
    settings = {"retention_ms": -1, "retention_bytes": -1} | config
    return deletable(
        facts,
        policies_of(LogConfig(**settings)),
        log_start_offset=log_start_offset,
        up_to_offset=up_to_offset,
        now_ms=1000,
    )


def test_without_limits_nothing_goes() -> None:
    assert choose(segments(0, 0, 0)) == []


@pytest.mark.parametrize(("retention_ms", "expected"), [(900, 0), (899, 1), (700, 2), (0, 3)])
def test_by_time_the_newest_record_counts(retention_ms: int, expected: int) -> None:
    assert choose(segments(100, 200, 300), retention_ms=retention_ms) == [OLD] * expected


def test_a_young_segment_shields_the_old_ones_behind_it() -> None:
    assert choose(segments(0, 999, 0), retention_ms=10) == [OLD]


def test_records_without_timestamps_never_grow_old() -> None:
    assert choose(segments(-1), retention_ms=0) == []


@pytest.mark.parametrize(("retention_bytes", "expected"), [(301, 0), (300, 0), (200, 1), (199, 1), (100, 2), (0, 3)])
def test_by_size_the_log_keeps_at_least_its_limit(retention_bytes: int, expected: int) -> None:
    assert choose(segments(1, 1, 1), retention_bytes=retention_bytes) == [BIG] * expected


@pytest.mark.parametrize(("log_start_offset", "expected"), [(0, 0), (9, 0), (10, 1), (25, 2)])
def test_whole_segments_below_the_log_start_offset_go(log_start_offset: int, expected: int) -> None:
    assert choose(segments(1, 1, 1), log_start_offset=log_start_offset) == [BELOW] * expected


def test_either_policy_is_enough() -> None:
    assert choose(segments(0, 999, 999), retention_ms=10, retention_bytes=150) == [OLD]
    assert choose(segments(0, 999, 999), retention_ms=10, retention_bytes=100) == [OLD, BIG]


def test_nothing_at_the_high_watermark_is_touched() -> None:
    assert choose(segments(0, 0, 0), retention_ms=0, up_to_offset=19) == [OLD]


def test_the_last_segment_stays_while_it_is_empty() -> None:
    assert choose(segments(0, size_bytes=0), retention_bytes=0, log_start_offset=10) == []


def test_an_older_segment_whose_file_was_lost_goes_and_keeps_nothing_newer() -> None:
    lost, *newer = segments(0, 0, 0, 999)
    facts = [replace(lost, size_bytes=0), *newer]
    assert choose(facts, log_start_offset=20) == [BELOW] * 2
    assert choose(facts, retention_ms=10) == [OLD] * 3
    assert choose(facts, retention_bytes=150) == [BIG] * 2


def test_policies_are_pluggable() -> None:
    class KeepTwo:
        def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
            return "only two are kept" if log.size_bytes > 2 * segment.size_bytes else None

    chosen = deletable(segments(1, 1, 1, 1), [KeepTwo()], log_start_offset=0, up_to_offset=1000, now_ms=0)
    assert chosen == ["only two are kept"] * 2
