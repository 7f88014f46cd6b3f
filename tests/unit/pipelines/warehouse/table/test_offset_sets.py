"""Sets of offsets that commits keep: each comes back as it was, takes little room, and no changed bit stays unseen."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import WarehouseError
from millrace.records.absent import NO_INTERVALS, as_intervals, intervals_of
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.lineage import (
    INLINE_BYTES,
    OffsetPage,
    keep_offsets,
    kept_offsets,
    merged,
    named_by,
    packed,
    pages_of,
    unpacked,
)
from millrace_support.loads import FS

LARGE = 1 << 62
MILLIONS = np.arange(10_000_000)
sets = st.sets(st.integers(0, 60) | st.integers(0, LARGE)).map(sorted)


def intervals(offsets):
    return intervals_of(np.array(offsets, np.int64))


@given(sets, st.integers(0, 1000))
def test_a_set_comes_back(offsets, before):
    found = intervals([offset + before for offset in offsets])
    assert unpacked(packed(found, before), before).tolist() == found.tolist()


@given(st.sets(st.integers(0, 60)), st.integers(0, 61), st.integers(0, 61))
def test_marks_are_those_of_the_set(offsets, low, high):
    low, high = sorted((low, high))
    page = OffsetPage(0, 0, 61, packed(intervals(sorted(offsets)), 0))
    assert page.marks(low, high).tolist() == [offset in offsets for offset in range(low, high)]


@given(st.lists(st.integers(0, 9), max_size=12), st.randoms())
def test_merged_parts_are_one_set(lengths, chance):
    edges = np.cumsum([0, *lengths]).tolist()
    parts = [as_intervals([span]) for span in pairwise(edges) if span[0] < span[1]][::2]
    offsets = [offset for part in parts for offset in range(*part[0].tolist())]
    chance.shuffle(parts)
    assert merged([NO_INTERVALS, *parts]).tolist() == intervals(offsets).tolist()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=20))
def test_pages_have_each_offset_as_often_as_it_comes(places):
    partitions, offsets = np.array(places, np.int64).reshape(-1, 2).T
    pages = list(pages_of(partitions, offsets))
    found = [(page.partition, n) for page in pages for low, high in page.intervals().tolist() for n in range(low, high)]
    assert Counter(found) == Counter(places)
    for page in pages:
        low, high = page.intervals()[0, 0], page.intervals()[-1, 1]
        assert (page.from_offset, page.until_offset) == (low, high)


@pytest.mark.parametrize(
    ("offsets", "most_bytes"),
    [
        (MILLIONS[:0], 20),
        (MILLIONS[::2], 20_000),
        (MILLIONS[MILLIONS % 11 != 10], 3_000),
        (MILLIONS[np.random.default_rng(1).random(len(MILLIONS)) < 0.5], 2_500_000),
    ],
    ids=["none", "every other", "transactions of ten", "by chance"],
)
def test_ten_million_offsets_take_little_room(offsets, most_bytes):
    assert len(packed(intervals_of(offsets), 0)) < most_bytes


def pages(count):
    return [OffsetPage(0, n, n + 9, packed(as_intervals([(n + 2, n + 5)]), n)) for n in range(0, count * 9, 9)]


@pytest.mark.parametrize("count", [0, 1, 100])
def test_what_is_kept_is_read_again(tmp_path, count):
    store = store_at(str(tmp_path), FS)
    said = keep_offsets(store, "load", pages(count))
    assert kept_offsets(store, said) == pages(count)
    assert ("file" in said) == (count == 100)
    assert named_by([{"recorded": said}, {"kind": "x"}]) == {said[key] for key in ("file",) if key in said}


def test_any_flipped_bit_of_a_file_is_found(tmp_path):
    store = store_at(str(tmp_path), FS)
    said = keep_offsets(store, "load", pages(100))
    path = Path(tmp_path, said["file"])
    content = path.read_bytes()
    assert len(content) > INLINE_BYTES
    chance = random.Random(4)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(WarehouseError, match="was written"):
            kept_offsets(store, said)
    path.unlink()
    with pytest.raises(WarehouseError, match="not there"):
        kept_offsets(store, said)


def test_changed_pages_in_a_lineage_are_found(tmp_path):
    store = store_at(str(tmp_path), FS)
    said = keep_offsets(store, "load", pages(1))
    changed = {**said, "pages": [page._replace(until_offset=99) for page in pages(1)]}
    with pytest.raises(WarehouseError, match="in its lineage"):
        kept_offsets(store, changed)
