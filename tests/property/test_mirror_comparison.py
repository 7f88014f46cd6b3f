"""Any change of a mirrored log is found by its comparison with the source, named exactly; without one nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.client.fetched import FetchedBatch
from millrace.records.batch import BatchHeader, read_header
from millrace.records.record import Record, encode_records
from millrace_pipelines.mirror.comparison import by_sequence
from millrace_pipelines.mirror.comparison.by_key import NewestRecords, Side, compare_by_key, may_lack
from millrace_pipelines.mirror.comparison.by_offset import compare_by_offset
from millrace_pipelines.mirror.comparison.by_sequence import Cut, compare_by_sequence
from millrace_pipelines.mirror.comparison.difference import Difference, Kind
from millrace_pipelines.mirror.comparison.log_reader import LogReader
from millrace_pipelines.mirror.comparison.naming import renamed

Log = Sequence[Record]
FAR = 2**62
UNCUT = Cut()


@pytest.fixture(scope="module", autouse=True)
def small_windows() -> Iterator[None]:
    """Makes windows so small that records lie in several of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_sequence, "WINDOW", 8)
        patch.setattr(by_sequence, "SEARCHED", 16)
        patch.setattr(by_sequence, "REACHES", (16, 64, None))
        yield


class Said(NamedTuple):
    """What is asked of a difference: its kind, offsets and detail."""

    kind: Kind
    source_offset: int | None
    target_offset: int | None
    detail: str = ""


def record(offset: int) -> Record:
    return Record(offset, 1000 + offset, b"k%d" % (offset % 5), b"v%d" % offset, (("h", b"%d" % offset),))


def ignore(_source: int, _target: int, _count: int) -> None:
    """Takes records that belong together."""


def reader(log: Log, sizes: Sequence[int] = (3,)) -> LogReader:
    """Returns a reader of a log whose batches have these many records, over and over."""
    batches: list[FetchedBatch] = []
    left, number = list(log), 0
    while left:
        size = sizes[number % len(sizes)]
        some, left, number = left[:size], left[size:], number + 1
        header = BatchHeader(some[0].offset, last_offset_delta=some[-1].offset - some[0].offset)
        data = encode_records(header, some)
        batches.append(FetchedBatch(read_header(data), memoryview(data), is_passed_over=False))

    def read(offset: int) -> Iterator[FetchedBatch]:
        return (one for one in batches if one.header.next_offset > offset)

    return LogReader(read, log[0].offset if log else 0, FAR)


def numbered(records: Sequence[Record], gaps: Sequence[int] = (0,)) -> list[Record]:
    """Returns records with a target's offsets: they rise by one, and by the gaps that markers leave."""
    offset, found = -1, []
    for index, one in enumerate(records):
        offset += 1 + gaps[index % len(gaps)]
        found.append(one._replace(offset=offset))
    return found


def compared(source: Log, target: Log, cut: Cut = UNCUT, sizes: Sequence[int] = (3,)) -> list[Said]:
    found = list(compare_by_sequence(reader(source), reader(target, sizes), ignore, cut))
    return said(renamed(found, source))


def said(differences: Sequence[Difference]) -> list[Said]:
    return [Said(one.kind, one.source_offset, one.target_offset, one.detail) for one in differences]


FIELDS: dict[str, Callable[[Record], Record]] = {
    "timestamp": lambda one: one._replace(timestamp_ms=one.timestamp_ms + 1),
    "key": lambda one: one._replace(key=None),
    "value": lambda one: one._replace(value=(one.value or b"") + b"!"),
    "headers": lambda one: one._replace(headers=(*one.headers, ("more", None))),
}
lengths = st.integers(1, 60)
batch_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=5)
marker_gaps = st.lists(st.integers(0, 2), min_size=1, max_size=5)


@given(lengths, batch_sizes, marker_gaps)
def test_equal_copies_have_no_difference_and_every_record_its_pair(
    length: int, sizes: list[int], gaps: list[int]
) -> None:
    source = numbered([record(each) for each in range(length)], gaps)
    target = numbered(source)
    pairs: list[tuple[int, int]] = []

    def pair(one: int, other: int, count: int) -> None:
        pairs.extend((one + each, other + each) for each in range(count))

    assert list(compare_by_sequence(reader(source), reader(target, sizes), pair)) == []
    assert pairs == [(one.offset, other.offset) for one, other in zip(source, target, strict=True)]


@given(lengths, batch_sizes, st.data())
def test_a_record_that_a_copy_lacks_is_named(length: int, sizes: list[int], data: st.DataObject) -> None:
    source = [record(each) for each in range(length)]
    at = data.draw(st.integers(0, length - 1))
    target = numbered(source[:at] + source[at + 1 :])
    assert compared(source, target, sizes=sizes) == [Said(Kind.MISSING, at, None)]


@given(lengths, batch_sizes, st.data())
def test_a_record_that_a_copy_has_twice_is_named(length: int, sizes: list[int], data: st.DataObject) -> None:
    source = [record(each) for each in range(length)]
    at, to = data.draw(st.integers(0, length - 1)), data.draw(st.integers(0, length))
    target = numbered([*source[:to], source[at], *source[to:]])
    [found] = compared(source, target, sizes=sizes)
    copies = {index for index, one in enumerate(target) if one.value == source[at].value}
    assert (found.kind, found.source_offset) == (Kind.TWICE, at)
    assert found.target_offset in copies


@given(lengths, batch_sizes, st.data())
def test_a_record_that_only_a_copy_has_is_named(length: int, sizes: list[int], data: st.DataObject) -> None:
    source = [record(each) for each in range(length)]
    at = data.draw(st.integers(0, length))
    strange = Record(0, 1, b"strange", b"?")
    target = numbered([*source[:at], strange, *source[at:]])
    assert compared(source, target, sizes=sizes) == [Said(Kind.EXTRA, None, at)]


@given(lengths, st.sampled_from(sorted(FIELDS)), batch_sizes, st.data())
def test_a_field_that_differs_in_a_copy_is_named(
    length: int, field: str, sizes: list[int], data: st.DataObject
) -> None:
    source = [record(each) for each in range(length)]
    at = data.draw(st.integers(0, length - 1))
    target = numbered([FIELDS[field](one) if one.offset == at else one for one in source])
    assert compared(source, target, sizes=sizes) == [Said(Kind.ALTERED, at, at, f"other {field}")]


@given(st.integers(2, 60), batch_sizes, st.data())
def test_records_that_changed_places_in_a_copy_are_named(length: int, sizes: list[int], data: st.DataObject) -> None:
    source = [record(each) for each in range(length)]
    one, other = sorted(data.draw(st.sets(st.integers(0, length - 1), min_size=2, max_size=2)))
    swapped = list(source)
    swapped[one], swapped[other] = source[other], source[one]
    found = compared(source, numbered(swapped), sizes=sizes)
    assert {each.kind for each in found} == {Kind.MOVED}
    assert {each.source_offset for each in found} <= {one, other} or other - one == 2  # the one between them moved


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 3), st.data())
def test_records_of_few_contents_are_counted_too(ours: int, theirs: int, contents: int, data: st.DataObject) -> None:
    same = st.integers(0, contents - 1)
    source = numbered([Record(0, 1, None, b"%d" % data.draw(same)) for _ in range(ours)])
    target = numbered([Record(0, 1, None, b"%d" % data.draw(same)) for _ in range(theirs)])
    found = list(compare_by_sequence(reader(source), reader(target), ignore))
    lacking = sum(one.count for one in found if one.kind is Kind.MISSING)
    more = sum(one.count for one in found if one.kind is Kind.EXTRA)
    assert ours - lacking == theirs - more
    assert bool(found) == ([one[1:] for one in source] != [one[1:] for one in target])


@pytest.mark.parametrize("lost", [1, 9, 15, 17, 40, 200])
def test_many_records_that_a_copy_lacks_are_named_together(lost: int) -> None:
    source = [record(each) for each in range(300)]
    target = numbered(source[:50] + source[50 + lost :])
    found = list(compare_by_sequence(reader(source), reader(target), ignore))
    assert {one.kind for one in found} == {Kind.MISSING}
    spans = [(one.source_offset or 0, one.count) for one in found]
    offsets = [offset for begin, count in spans for offset in range(begin, begin + count)]
    assert offsets == list(range(50, 50 + lost))


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 60), batch_sizes)
def test_what_retention_cut_off_is_no_difference(of_source: int, of_target: int, left: int, sizes: list[int]) -> None:
    whole = [record(each) for each in range(max(of_source, of_target) + left)]
    source, target = whole[of_source:], numbered(whole)[of_target:]
    assert compared(source, target, Cut(source=of_source > 0, target=of_target > 0), sizes) == []


@given(st.integers(0, 60), st.integers(0, 60), st.integers(20, 60), st.data())
def test_a_record_that_a_copy_lacks_is_named_beside_retention(
    of_source: int, of_target: int, left: int, data: st.DataObject
) -> None:
    begin = max(of_source, of_target)
    whole = [record(each) for each in range(begin + left)]
    at = data.draw(st.integers(begin + 1, begin + left - 1))
    target = numbered(whole[:at] + whole[at + 1 :])[of_target:]
    cut = Cut(source=of_source > 0, target=of_target > 0)
    assert compared(whole[of_source:], target, cut) == [Said(Kind.MISSING, at, None)]


@given(lengths, batch_sizes, st.data())
def test_a_change_of_a_followed_log_is_named(length: int, sizes: list[int], data: st.DataObject) -> None:
    source = [record(each) for each in range(length)]
    at, change = data.draw(st.integers(0, length - 1)), data.draw(st.sampled_from(["lack", *sorted(FIELDS)]))
    target = [FIELDS[change](one) if one.offset == at and change != "lack" else one for one in source]
    if change == "lack":
        del target[at]
    expected = Said(Kind.MISSING, at, None) if change == "lack" else Said(Kind.ALTERED, at, at, f"other {change}")
    found = compare_by_offset(reader(source), reader(target), ignore, is_compacted=False)
    assert [one for one in said(list(found)) if one.kind is not Kind.BATCH] == [expected]
    backwards = compare_by_offset(reader(target), reader(source), ignore, is_compacted=False)
    kinds = {one.kind for one in backwards} - {Kind.BATCH}
    assert kinds == {Kind.EXTRA if change == "lack" else Kind.ALTERED}


def test_other_bytes_of_the_same_records_are_named_in_a_followed_log() -> None:
    source = [record(each) for each in range(9)]
    with_other_bounds = said(list(compare_by_offset(reader(source), reader(source, (9,)), ignore, is_compacted=False)))
    assert [one.kind for one in with_other_bounds] == [Kind.BATCH]
    assert "last offset delta" in with_other_bounds[0].detail
    assert list(compare_by_offset(reader(source), reader(source, (9,)), ignore, is_compacted=True)) == []


keyed = st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), min_size=1, max_size=40)


def log_of(records: Sequence[tuple[str, bool]]) -> list[Record]:
    """Returns a log of keys with values, or tombstones."""
    return [
        Record(offset, offset, key.encode(), None if is_tombstone else b"v%d" % offset)
        for offset, (key, is_tombstone) in enumerate(records)
    ]


def compacted(log: Sequence[Record], draw: Callable[[int], bool], *, expires: bool) -> list[Record]:
    """Returns a log as compaction may leave it: what is no longer the newest of its key is gone, or not yet.

    A tombstone may be gone too, but only once all before it are.
    """
    newest = {one.key: one.offset for one in log}
    left = [one for one in log if newest[one.key] == one.offset or draw(one.offset)]
    alone = [one for one in left if sum(other.key == one.key for other in left) == 1]
    return [one for one in left if not (expires and one.value is None and one in alone and draw(-1 - one.offset))]


def compared_by_key(source: Log, target: Log, until: int = FAR, cut: Cut = UNCUT) -> list[Said]:
    with NewestRecords() as newest:
        newest.take(Side.SOURCE, source, until)
        newest.take(Side.TARGET, target, FAR)
        return said(list(compare_by_key(newest, ignore, cut)))


def follows(source: Log, target: Log) -> list[Said]:
    """Returns the differences of followed logs that are both compacted."""
    with NewestRecords() as newest:
        newest.take(Side.SOURCE, source, FAR)
        newest.take(Side.TARGET, target, FAR)
        found = compare_by_offset(reader(source), reader(target), ignore, is_compacted=True)
        return said([one for one in found if not may_lack(newest, one, frozenset(Side))])


@given(keyed, st.randoms(use_true_random=False), st.booleans())
def test_compaction_on_both_sides_is_no_difference(keys: list[tuple[str, bool]], random: Random, expires: bool) -> None:
    log = log_of(keys)
    source = compacted(log, lambda _: random.random() < 0.5, expires=expires)
    target = compacted(log, lambda _: random.random() < 0.5, expires=expires)
    assert compared_by_key(source, numbered(target)) == []
    assert follows(source, target) == []


@given(keyed, st.randoms(use_true_random=False), st.data())
def test_a_newest_value_that_changed_is_named_beside_compaction(
    keys: list[tuple[str, bool]], random: Random, data: st.DataObject
) -> None:
    log = log_of([*keys, ("g", False)])
    source = compacted(log, lambda _: random.random() < 0.5, expires=True)
    target = compacted(log, lambda _: random.random() < 0.5, expires=True)
    newest = {one.key: one for one in log}
    victim = data.draw(st.sampled_from([one for one in newest.values() if one.value is not None]))
    without = [one for one in target if one.key != victim.key]
    changed = [one._replace(value=b"other") if one == victim else one for one in target]
    assert compared_by_key(source, numbered(without)) == [Said(Kind.MISSING, victim.offset, None)]
    assert [one.kind for one in compared_by_key(source, numbered(changed))] == [Kind.ALTERED]
    assert [one.kind for one in compared_by_key([one for one in source if one.key != victim.key], target)] == [
        Kind.EXTRA
    ]
    assert Said(Kind.MISSING, victim.offset, None) in follows(source, without)
    assert follows(source, changed) == [Said(Kind.ALTERED, victim.offset, victim.offset, "other value")]


@given(keyed, st.randoms(use_true_random=False), st.integers(0, 40))
def test_records_still_to_come_explain_what_the_source_has_compacted(
    keys: list[tuple[str, bool]], random: Random, progress: int
) -> None:
    log = log_of(keys)
    source = compacted(log, lambda _: random.random() < 0.5, expires=False)
    target = compacted(log[:progress], lambda _: random.random() < 0.5, expires=False)
    assert compared_by_key(source, numbered(target), progress) == []
