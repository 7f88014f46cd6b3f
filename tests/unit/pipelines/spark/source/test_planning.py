"""Filters to offsets, ranges to tasks, limits to shares, and a stream's checkpoint."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import IntegerType, StructType

from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.spark.errors import CheckpointError, SourceOptionError
from millrace_pipelines.spark.source import columns_of
from millrace_pipelines.spark.source.readers import (
    MAX_OFFSET,
    OffsetFilter,
    Progress,
    StreamOffset,
    narrow,
    ranges_between,
)
from millrace_pipelines.spark.source.rows import TopicRange, admit, split

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_filters_of_offsets_are_done_here():
    bounds, left = narrow(
        OffsetFilter(),
        [
            IsNotNull(("offset",)),
            GreaterThan(("offset",), 4),
            GreaterThanOrEqual(("offset",), 3),
            LessThan(("offset",), 20),
            LessThanOrEqual(("offset",), 11),
            In(("partition",), [0, 2]),
            EqualTo(("topic",), "events"),
        ],
    )
    assert left == []
    assert bounds == OffsetFilter(frozenset({"events"}), frozenset({0, 2}), 5, 12, None)
    assert [bounds.allows("events", 1), bounds.allows("events", 2), bounds.allows("others", 2)] == [False, True, False]


def test_times_narrow_and_are_left_to_spark_too():
    filters = [GreaterThanOrEqual(("timestamp",), NOON), LessThan(("timestamp",), NOON)]
    bounds, left = narrow(OffsetFilter(), filters)
    assert left == filters
    assert (bounds.from_timestamp_ms, bounds.until_offset) == (int(NOON.timestamp() * 1000), MAX_OFFSET)


def test_a_time_is_cut_to_the_millisecond_below():
    bounds, _ = narrow(OffsetFilter(), [GreaterThan(("timestamp",), NOON.replace(microsecond=1999))])
    assert bounds.from_timestamp_ms == int(NOON.timestamp() * 1000) + 1


@pytest.mark.parametrize(
    "one", [IsNotNull(("key",)), Not(EqualTo(("partition",), 1)), EqualTo(("value",), b"x"), In(("offset",), [1, 9])]
)
def test_other_filters_are_left_to_spark(one):
    assert narrow(OffsetFilter(), [one]) == (OffsetFilter(), [one])


def test_contradictions_leave_nothing():
    bounds, _ = narrow(OffsetFilter(), [EqualTo(("partition",), 1), EqualTo(("partition",), 2)])
    assert not bounds.allows("events", 1)


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(1, 10**5))
def test_pieces_are_the_whole(low, offsets, limit):
    pieces = split(TopicRange("t", 0, low, low + offsets), max(limit, offsets // 50 + 1))
    assert sum(piece.until_offset - piece.from_offset for piece in pieces) == offsets
    assert all(0 < piece.until_offset - piece.from_offset <= max(limit, offsets // 50 + 1) for piece in pieces)
    position = low
    for piece in pieces:
        assert piece.from_offset == position
        position = piece.until_offset


@given(st.dictionaries(st.tuples(st.just("t"), st.integers(0, 50)), st.integers(1, 10**9)), st.integers(1, 10**9))
def test_a_limit_is_used_up_and_never_passed(backlog, limit):
    admitted = admit(backlog, limit)
    assert sum(admitted.values()) == min(limit, sum(backlog.values()))
    assert all(0 <= admitted[place] <= waiting for place, waiting in backlog.items())


def test_a_checkpoint_travels_as_json():
    offset = StreamOffset({"b": "2", "a": "1"}, {("b", 10): Progress(0, 5), ("b", 9): Progress(1, 2)})
    document = offset.to_json()
    assert document == {
        "a": {"id": "1", "partitions": {}},
        "b": {"id": "2", "partitions": {"9": {"start": 1, "next": 2}, "10": {"start": 0, "next": 5}}},
    }
    assert list(document["b"]["partitions"]) == ["9", "10"]
    assert StreamOffset.from_json(document) == offset
    with pytest.raises(CheckpointError, match="not of this source"):
        StreamOffset.from_json({"events": {"0": 17}})


def test_a_micro_batch_reads_what_lies_between():
    start = StreamOffset({"t": "1"}, {("t", 0): Progress(0, 5), ("t", 1): Progress(0, 7), ("t", 2): Progress(0, 9)})
    end = StreamOffset(
        {"t": "1"},
        {("t", 0): Progress(0, 8), ("t", 1): Progress(9, 12), ("t", 2): Progress(3, 3), ("t", 3): Progress(2, 4)},
    )
    assert ranges_between(start, end) == [TopicRange("t", 0, 5, 8), TopicRange("t", 1, 9, 12), TopicRange("t", 3, 2, 4)]
    recreated = StreamOffset({"t": "2"}, {("t", 0): Progress(1, 3)})
    assert ranges_between(start, recreated) == [TopicRange("t", 0, 1, 3)]


def test_columns_may_be_left_out_and_nothing_else():
    envelope = from_arrow_schema(ENVELOPE_SCHEMA)
    assert to_arrow_schema(envelope, timezone="UTC") == ENVELOPE_SCHEMA
    some = StructType([envelope["value"], envelope["offset"]])
    assert columns_of(some).names == ["value", "offset"]
    with pytest.raises(SourceOptionError, match="schema: city string is no column of a topic"):
        columns_of(StructType(some.fields).add("city", "string"))
    with pytest.raises(SourceOptionError, match="schema: offset int32"):
        columns_of(StructType().add("offset", IntegerType()))
