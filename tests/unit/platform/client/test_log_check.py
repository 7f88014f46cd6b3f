"""What the check of a running cluster says of a partition's batches as they are fetched, whole and damaged."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.client.log_check import ALL, PartitionCheck, Share
from millrace.records.batch import CRC_POSITION, HEADER_BYTES, placed, read_header
from millrace.records.record import NewRecord, Record, encode_batch, encode_records

END = 30


def batch(base_offset, epoch=0, records=10):
    encoded = encode_batch([NewRecord(b"value", b"key", 1000)] * records)
    return placed(read_header(encoded), base_offset, epoch) + encoded[16:]


def checked(*answers, start=0, end=END, is_compacted=True):
    check = PartitionCheck("events", 0, start, is_compacted=is_compacted)
    for answer in answers:
        if not check.take(answer, end):
            break
    return check.report()


def found(report):
    return [(one.offset, one.reason) for one in report.findings]


def overwritten(content, position, new):
    return content[:position] + new + content[position + len(new) :]


@given(start=st.integers(0, 1 << 40), size=st.integers(0, 1 << 40), parts=st.integers(1, 9))
def test_all_shares_together_have_each_offset_once(start, size, parts):
    offsets = range(start, start + size)
    shares = [Share(number, parts).of(offsets) for number in range(parts)]
    assert (shares[0].start, shares[-1].stop) == (offsets.start, offsets.stop)
    assert all(one.stop == following.start for one, following in pairwise(shares))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert ALL.of(offsets) == offsets


WHOLE = batch(0) + batch(10) + batch(20)


def test_whole_batches_have_no_findings():
    report = checked(WHOLE)
    assert (report.topic, report.partition, report.batches, report.next_offset) == ("events", 0, 3, END)
    assert report.size_bytes == len(WHOLE)
    assert found(report) == []


@pytest.mark.parametrize(
    ("answers", "start"),
    [
        ((batch(0), batch(20)), 0),  # compacted between
        ((WHOLE,), 7),  # records were deleted up to the midst of a batch
        ((batch(0) + batch(10) + batch(20)[:-1], batch(20)), 0),  # the last batch of an answer is cut short
        ((batch(0, epoch=-1) + batch(10, epoch=2) + batch(20, epoch=-1),), 0),  # an old format has no epochs
    ],
)
def test_what_is_normal_is_no_finding(answers, start):
    report = checked(*answers, start=start)
    assert (report.next_offset, found(report)) == (END, [])


def test_gaps_are_damage_where_nobody_compacts():
    gap = [(10, "offsets 10-19 are missing: the topic is not compacted")]
    assert found(checked(batch(0) + batch(20), is_compacted=False)) == gap
    assert found(checked(batch(0), batch(20), is_compacted=False)) == gap
    first = [(0, "offsets 0-9 are missing: the topic is not compacted")]
    assert found(checked(batch(10) + batch(20), is_compacted=False)) == first
    assert found(checked(WHOLE, start=7, is_compacted=False)) == []


def test_a_batch_that_lacks_records_is_damage_where_nobody_compacts():
    full = read_header(batch(10))
    lacking = encode_records(full, [Record(13, 1000, b"key", b"value")])
    [(offset, reason)] = found(checked(batch(0) + lacking + batch(20), is_compacted=False))
    assert (offset, "has 1 records for its 10 offsets" in reason) == (10, True)
    assert found(checked(batch(0) + lacking + batch(20))) == []


def test_a_damaged_batch_is_named_and_those_behind_it_are_checked():
    damaged = overwritten(WHOLE, len(batch(0)) + HEADER_BYTES + 3, b"\xff")
    damaged = overwritten(damaged, len(damaged) - 1, b"\xff")
    report = checked(damaged)
    assert (report.batches, report.next_offset) == (3, END)
    assert found(report) == [(one, f"CRC-32C of the batch at offset {one} is wrong") for one in (10, 20)]


def test_a_batch_below_what_was_read_before_it_is_named():
    assert found(checked(batch(0) + batch(5) + batch(15, records=15))) == [
        (5, "the batch at offset 5 overlaps the one before, which ends at offset 9")
    ]
    assert found(checked(batch(0), start=20))[0] == (0, "the batch at offset 0 lies below the log's start, offset 20")


def test_an_overlap_is_found_across_answers():
    assert found(checked(batch(0), batch(5) + batch(15)))[0][0] == 5


def test_a_batch_beyond_the_end_is_named():
    assert found(checked(batch(0) + batch(10, records=50))) == [
        (10, "the batch at offset 10 ends at offset 59, beyond the log's end at 30")
    ]


def test_a_leader_epoch_that_falls_is_named_once():
    report = checked(batch(0, epoch=3) + batch(10, epoch=2) + batch(20, epoch=2))
    assert found(report) == [(10, "leader epoch 2 of the batch at offset 10 is below 3, that of the batch before")]


@pytest.mark.parametrize("damage", [(16, b"\x07"), (8, b"\x00\x00\x00\x01"), (23, b"\xff")])
def test_a_header_that_can_not_be_ends_the_check_with_a_finding(damage):
    position, new = damage
    report = checked(batch(0) + overwritten(batch(10), position, new), batch(20))
    assert (report.batches, report.next_offset) == (1, 10)
    [(offset, reason)] = found(report)
    assert offset == 10
    assert reason.endswith("; the partition is not checked from here on")


@pytest.mark.parametrize("answer", [b"", b"\0" * (HEADER_BYTES - 1), batch(0)[:-1]])
def test_a_log_that_ends_before_its_end_is_a_finding(answer):
    report = checked(batch(0) + batch(10), answer)
    assert found(report) == [(20, "the log ends at offset 30, but no valid batch is served from 20 on")]


def test_an_offset_delta_that_is_damaged_does_not_skip_the_batches_behind():
    damaged = overwritten(WHOLE, len(batch(0)) + CRC_POSITION + 6, b"\x00\x0f\x00\x00")
    report = checked(damaged)
    assert report.next_offset == END
    assert [offset for offset, _ in found(report)] == [10, 10]


def test_batches_may_go_on_where_retention_has_moved_the_start():
    check = PartitionCheck("events", 0, 0, is_compacted=True)
    check.take(batch(0), END)
    check.go_on_from(25)
    check.take(batch(20), END)
    assert found(check.report()) == []
