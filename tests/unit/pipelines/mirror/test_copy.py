"""What a copied partition does, decided from looks, fetches and the ends of transactions."""

import pytest

from millrace.client.damaged_batches import MissingOffsetsError
from millrace.client.fetched import AbortedTransaction, FetchedData
from millrace.client.groups import GroupOffset
from millrace.client.simple_consumer import EpochEnd
from millrace.errors import BrokerUnreachableError, CorruptRecordError, NotLeaderError, OffsetOutOfRangeError
from millrace.records.batch import TIMESTAMP_TYPE_FLAG, TRANSACTIONAL_FLAG, placed, read_header
from millrace.records.control import ControlType, EndTransactionMarker, encode_marker
from millrace.records.rebatch import SourceRun
from millrace.records.record import BatchProducer, NewRecord, Record, decode_records, encode_batch, encode_records
from millrace_pipelines.mirror.copy import Copy, CopyLook, Ids, Phase, Progress
from millrace_pipelines.mirror.settings import Accept
from millrace_pipelines.mirror.stops import Mirrored

WHAT = Mirrored("t", "east.t", 0)
IDS = Ids("s1", "t1")


def batch(base, *values, epoch=0, producer=None):
    options = {} if producer is None else {"producer": BatchProducer(producer, 0, 0), "flags": TRANSACTIONAL_FLAG}
    data = encode_batch([NewRecord(value, None, 1000 + base) for value in values], base_offset=base, **options)
    return placed(read_header(data), base, epoch) + data[16:]


def marker(base, producer, kind=ControlType.ABORT):
    data = encode_marker(EndTransactionMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp_ms=0)
    return placed(read_header(data), base, 0) + data[16:]


def answer(asked, *batches, end=1000, aborted=()):
    return FetchedData(b"".join(batches), end, end, 0, aborted, asked)


def refuse_gap(what, gap):
    raise MissingOffsetsError(f"{what} lacks {gap}")


def copying(look, *, check_gap=refuse_gap, **settings):
    copy = Copy(WHAT, check_gap, ids=IDS, **settings)
    copy.looked(look)
    return copy


def running(next_offset=0):
    return copying(CopyLook(Progress(next_offset, IDS), 0, 50, "s1"))


AT_TEN = Progress(10, IDS, 3)
LOOKS = {
    # progress, source start, target end, the source's topic id, its end of the epoch; options → where, or a word
    "nothing is there": (CopyLook(None, 0, 0, "s1"), (), (Phase.BEGIN, 0)),
    "the source begins later": (CopyLook(None, 70, 0, "s1"), (), (Phase.BEGIN, 70)),
    "records of somebody else": (CopyLook(None, 0, 5, "s1"), (), "has records at the target"),
    "it goes on": (CopyLook(AT_TEN, 0, 12, "s1"), (), (Phase.RUN, 10)),
    "ids are not known": (CopyLook(Progress(10), 0, 12, None), (), (Phase.BEGIN, 10)),
    "the epoch ends where it did": (CopyLook(AT_TEN, 0, 12, "s1", EpochEnd(3, 10)), (), (Phase.RUN, 10)),
    "the epoch is not known": (CopyLook(AT_TEN, 0, 12, "s1", EpochEnd(-1, -1)), (), (Phase.RUN, 10)),
    "the log was cut": (CopyLook(AT_TEN, 0, 12, "s1", EpochEnd(2, 8)), (), "cut below offset 10"),
    "that is accepted": (CopyLook(AT_TEN, 0, 12, "s1", EpochEnd(2, 8)), (Accept.TRUNCATED_LOG,), (Phase.BEGIN, 8)),
    "purged": (CopyLook(AT_TEN, 15, 12, "s1"), (), "deleted offsets 10-14"),
    "purged, which is accepted": (CopyLook(AT_TEN, 15, 12, "s1"), (Accept.LOST_OFFSETS,), (Phase.BEGIN, 15)),
    "created again": (CopyLook(AT_TEN, 0, 12, "s2"), (), "created again"),
    "that waits for the keeper": (CopyLook(AT_TEN, 0, 12, "s2"), (Accept.RECREATED_TOPIC,), (Phase.CHECK, 0)),
    "the keeper has taken it": (CopyLook(Progress(10, Ids("s0", "t1")), 2, 12, "s1"), (), (Phase.BEGIN, 2)),
    "the target was created again": (CopyLook(Progress(10, Ids("s1", "t0")), 0, 0, "s1"), (), (Phase.BEGIN, 0)),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_decides(name):
    look, accepted, expected = LOOKS[name]
    copy = copying(look, accepted=frozenset(accepted))
    if isinstance(expected, str):
        assert copy.phase is Phase.STOPPED
        assert expected in copy.stop.reason
    else:
        assert (copy.phase, copy.next_offset) == expected


def test_progress_is_committed_before_records_are_fetched():
    copy = copying(CopyLook(None, 0, 0, "s1"), start_offset=7)
    assert copy.first_progress == Progress(7, IDS)
    assert not copy.wants_fetch
    copy.was_committed(copy.first_progress)
    assert copy.wants_fetch


@pytest.mark.parametrize(
    ("committed", "progress"),
    [
        (None, None),
        (GroupOffset(-1, ""), None),
        (AT_TEN.to_commit, AT_TEN),
        (GroupOffset(10, "", 3), Progress(10, leader_epoch=3)),
        (GroupOffset(10, "no JSON", 3), Progress(10, leader_epoch=3)),
        (GroupOffset(10, "[]", 3), Progress(10, leader_epoch=3)),
    ],
)
def test_progress_is_read_from_what_the_group_has_committed(committed, progress):
    assert Progress.of(committed) == progress


def parts_of(portion):
    return [([one.value for one in decode_records(part.batch)], part.runs) for part in portion.parts]


def test_what_is_passed_over_moves_the_progress():
    copy = running()
    aborted = (AbortedTransaction(7, 1),)
    portion = copy.fetched(answer(0, batch(0, b"a"), batch(1, b"x", producer=7), marker(2, 7), aborted=aborted))
    assert parts_of(portion) == [([b"a"], (SourceRun(0, 0, 1),))]
    assert (portion.progress.next_offset, copy.next_offset) == (3, 3)
    assert copy.fetched(answer(3, marker(3, 8, ControlType.COMMIT))).parts == ()


def test_records_below_the_start_are_left_out():
    copy = running(next_offset=11)
    portion = copy.fetched(answer(11, batch(10, b"a", b"b", b"c")))
    assert parts_of(portion) == [([b"b", b"c"], (SourceRun(11, 0, 2),))]


def test_a_compacted_batch_has_a_run_for_each_piece():
    header = read_header(batch(0, b"", b"", b"", b""))
    data = encode_records(header, [Record(offset, 1, b"k", b"%d" % offset) for offset in (0, 2, 3)])
    copy = copying(CopyLook(Progress(0, IDS), 0, 50, "s1"), check_gap=lambda what, gap: None)
    assert parts_of(copy.fetched(answer(0, data))) == [([b"0", b"2", b"3"], (SourceRun(0, 0, 1), SourceRun(2, 1, 2)))]


def test_records_with_the_time_of_the_append_keep_it():
    header = read_header(batch(0, b"a"))
    logged = header._replace(attributes=TIMESTAMP_TYPE_FLAG, max_timestamp=77)
    portion = running().fetched(answer(0, encode_records(logged, [Record(0, 77, None, b"a")])))
    assert [one.timestamp_ms for one in decode_records(portion.parts[0].batch)] == [77]


def test_a_rollback_fetches_again_and_an_older_answer_counts_no_more():
    copy = running(next_offset=10)
    copy.fetched(answer(10, batch(10, b"a")))
    copy.was_rolled_back()
    assert copy.next_offset == 10
    assert copy.fetched(answer(11, batch(11, b"b"))) is None
    assert copy.fetched(answer(10, batch(10, b"a"))).progress.next_offset == 11


def test_what_was_committed_stays_after_a_rollback():
    copy = running()
    first = copy.fetched(answer(0, batch(0, b"a")))
    copy.was_committed(first.progress)
    copy.fetched(answer(1, batch(1, b"b")))
    copy.was_rolled_back()
    assert copy.next_offset == 1


@pytest.mark.parametrize("error", [NotLeaderError("moved"), BrokerUnreachableError("away")])
def test_after_an_error_it_looks_again_once_all_that_was_sent_is_committed(error):
    copy = running()
    portion = copy.fetched(answer(0, batch(0, b"a")))
    copy.fetched(error)
    assert (copy.wants_fetch, copy.wants_look) == (False, False)
    copy.was_committed(portion.progress)
    assert copy.wants_look


def test_another_leader_epoch_is_followed_by_a_look():
    copy = running()
    portion = copy.fetched(answer(0, batch(0, b"a", epoch=3)))
    assert copy.fetched(answer(1, batch(1, b"b", epoch=4))) is None
    copy.was_committed(portion.progress)
    assert copy.wants_look
    copy.looked(CopyLook(portion.progress, 0, 50, "s1", EpochEnd(3, 1)))
    assert copy.fetched(answer(1, batch(1, b"b", epoch=4))).progress == Progress(2, IDS, 4)


def outside(progress, *, start=0, end=0, accepted=()):
    """Returns a copy whose source has said that it has no such offset, after the look that followed."""
    copy = copying(CopyLook(progress, 0, 50, "s1", source_end=progress.next_offset), accepted=frozenset(accepted))
    copy.fetched(OffsetOutOfRangeError("no such offset"))
    copy.looked(CopyLook(progress, start, 50, "s1", source_end=end))
    return copy


FIRST = Progress(10, IDS)
OUTSIDE = {
    "the log was cut": (outside(FIRST, end=8), "cut below offset 10"),
    "that is accepted": (outside(FIRST, end=8, accepted=[Accept.TRUNCATED_LOG]), (Phase.BEGIN, 8)),
    "cut below what was deleted": (outside(FIRST, start=9, end=9, accepted=[Accept.TRUNCATED_LOG]), (Phase.BEGIN, 9)),
    "it was a leader that lagged": (outside(FIRST, end=10), (Phase.RUN, 10)),
    "it has more by now": (outside(FIRST, end=12), (Phase.RUN, 10)),
    "purged": (outside(FIRST, start=12, end=12), "deleted offsets 10-11"),
    "the leader epoch will tell": (outside(AT_TEN, end=8), (Phase.RUN, 10)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_source_without_the_offset_and_without_a_leader_epoch(name):
    copy, expected = OUTSIDE[name]
    if isinstance(expected, str):
        assert copy.phase is Phase.STOPPED
        assert expected in copy.stop.reason
    else:
        assert (copy.phase, copy.next_offset) == expected


def flipped(data):
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


DAMAGE = {
    "a wrong CRC": (answer(0, batch(0, b"ok"), flipped(batch(1, b"abc"))), 1),
    "a wrong CRC at once": (answer(0, flipped(batch(0, b"abc"))), None),
    "a gap": (answer(0, batch(0, b"ok"), batch(5, b"x")), 1),
    "offsets that do not rise": (answer(0, batch(0, b"ok"), batch(0, b"ok")), 1),
    "what the broker says": (CorruptRecordError("damaged"), None),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_stops_the_partition_behind_what_is_intact(name):
    event, end = DAMAGE[name]
    copy = running()
    portion = copy.fetched(event)
    assert "the source's log is damaged" in copy.stop.reason
    assert (None if portion is None else portion.progress.next_offset) == end


def test_what_was_committed_while_the_source_read_is_asked_for_again():
    copy = running()
    assert copy.fetched(answer(0, batch(0, b"a"), batch(1, b"b", b"c"), end=2)).progress.next_offset == 1
    assert copy.fetched(answer(1, batch(1, b"b", b"c"), end=3)).progress.next_offset == 3
    for _ in range(2):
        assert copy.phase is Phase.RUN
        assert copy.fetched(answer(3, batch(3, b"d"), end=3)) is None
    assert copy.stop.reason == (
        "t-0: the source's log is damaged: a batch says that it ends at offset 4, the log ends at 3"
    )


def test_small_batches_beside_each_other_are_sent_as_one():
    large = batch(4, *[b"x"] * 17)
    portion = running().fetched(answer(0, batch(0, b"a"), batch(1, b"b", b"c"), batch(3, b"d"), large, batch(21, b"e")))
    assert parts_of(portion) == [
        ([b"a", b"b", b"c", b"d"], (SourceRun(0, 0, 4),)),
        ([b"x"] * 17, (SourceRun(4, 0, 17),)),
        ([b"e"], (SourceRun(21, 0, 1),)),
    ]
    assert bytes(portion.parts[1].batch) == large
    assert [(part.record_count, part.newest_ms) for part in portion.parts] == [(4, 1003), (17, 1004), (1, 1021)]
    assert portion.progress.next_offset == 22


def test_a_merged_batch_that_is_refused_is_sent_as_the_batches_that_it_was():
    copy = running()
    fetched = answer(0, batch(0, b"a"), batch(1, b"b"))
    assert len(copy.fetched(fetched).parts) == 1
    copy.was_rolled_back()
    copy.was_refused(CorruptRecordError("too large"))
    assert copy.wants_fetch
    assert len(copy.fetched(fetched).parts) == 2
    copy.was_rolled_back()
    copy.was_refused(CorruptRecordError("too large"))
    assert copy.phase is Phase.STOPPED


def test_a_batch_above_the_high_watermark_is_left_for_the_next_answer():
    first, second = batch(0, b"a"), batch(1, b"b")
    copy = running()
    assert copy.fetched(answer(0, first, second, end=1)).progress.next_offset == 1
    assert copy.fetched(answer(1, second, end=2)).progress.next_offset == 2
    copy = running()
    copy.fetched(answer(0, first, second, end=1))
    assert copy.fetched(answer(1, second, end=1)) is None
    assert "ends at offset 2, the log ends at 1" in copy.stop.reason
