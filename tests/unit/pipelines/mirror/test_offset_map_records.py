"""The records of `__mirror_offsets`: keys, values that are not too large, and where the topic has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.config import MAX_LONG
from millrace_pipelines.mirror import offset_map_topic
from millrace_pipelines.mirror.offset_map import MappedRuns, OffsetMapError, Run, decode_runs
from millrace_pipelines.mirror.offset_map_topic import (
    PARTITIONS,
    MapKey,
    decode_key,
    encode_key,
    map_partition,
    map_records,
)

NAMES = st.text(min_size=1, max_size=20)


@given(NAMES, NAMES, st.integers(0, 2**31 - 1), st.integers(0, MAX_LONG))
def test_keys_come_back_from_their_bytes(mirror, topic, partition, first_target):
    key = MapKey(mirror, topic, partition, first_target)
    assert decode_key(encode_key(key)) == key


def test_a_key_in_bytes_is_as_drawn():
    drawn = b"\x01" + b"\x00\x04" + b"\x00\x06" + b"\x00\x00\x00\x03" + (100).to_bytes(8, "big") + b"east" + b"clicks"
    assert encode_key(MapKey("east", "clicks", 3, 100)) == drawn


GOOD = encode_key(MapKey("east", "clicks", 3, 100))
WRONG = {
    "none": None,
    "empty": b"",
    "another one's": b"east/clicks",
    "another version": b"\x02" + GOOD[1:],
    "cut": GOOD[:-1],
    "longer": GOOD + b"s",
    "no names": GOOD[:1] + bytes(4) + GOOD[5:17],
    "no text": GOOD[:-1] + b"\xff",
    "a negative partition": GOOD[:5] + b"\xff" * 4 + GOOD[9:],
}


@pytest.mark.parametrize("key", WRONG.values(), ids=WRONG)
def test_a_key_of_another_writer_is_refused(key):
    with pytest.raises(OffsetMapError, match="is not that of an offset map"):
        decode_key(key)


def test_many_runs_are_in_several_records_of_one_partition(monkeypatch):
    monkeypatch.setattr(offset_map_topic, "RUNS_PER_RECORD", 2)
    runs = [Run(10 * index, 20 * index, 3) for index in range(5)]
    found = map_records("east", "clicks", 1, MappedRuns(50, runs))
    assert [decode_key(one.key).first_target for one in found] == [0, 40, 80]
    assert [decode_runs(one.value) for one in found] == [
        MappedRuns(13, runs[:2]), MappedRuns(33, runs[2:4]), MappedRuns(50, runs[4:])
    ]  # fmt: skip
    assert {one.partition for one in found} == {map_partition("east", "clicks", 1)}


def test_the_largest_record_fits_into_a_batch_of_every_cluster():
    span = MAX_LONG // (offset_map_topic.RUNS_PER_RECORD + 2)
    runs = [Run(span * index, span * index, span // 2) for index in range(1, offset_map_topic.RUNS_PER_RECORD + 1)]
    [record] = map_records("east", "clicks", 1, MappedRuns(MAX_LONG, runs))
    assert len(record.value) < 1_000_000


def test_without_runs_there_is_nothing_to_record():
    assert map_records("east", "clicks", 1, MappedRuns(50, [])) == []


def test_partitions_are_spread_over_the_topic():
    used = {map_partition("east", f"topic-{index}", index % 3) for index in range(200)}
    assert used == set(range(PARTITIONS))
