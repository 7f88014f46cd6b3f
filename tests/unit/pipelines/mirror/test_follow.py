"""What a followed partition does, decided from looks, fetches and appends."""

from uuid import UUID

import pytest

from millrace.client.damaged_batches import MissingOffsetsError
from millrace.client.fetched import FetchedData
from millrace.errors import (
    BrokerUnreachableError,
    CorruptRecordError,
    NotLeaderError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    RecordTooLargeError,
)
from millrace.records.batch import placed, read_header
from millrace.records.control import encode_mirror_end
from millrace.records.record import NewRecord, encode_batch
from millrace_pipelines.mirror.follow import Follow, Look, Phase
from millrace_pipelines.mirror.settings import Accept
from millrace_pipelines.mirror.stops import Mirrored

WHAT = Mirrored("t", "east.t", 0)


def batch(base, *values, epoch=0):
    data = encode_batch([NewRecord(value, None, 1000 + base) for value in values], base_offset=base)
    return placed(read_header(data), base, epoch) + data[16:]


def answer(asked, *batches, end=1000):
    return FetchedData(b"".join(batches), end, end, 0, (), asked)


def refuse_gap(what, gap):
    raise MissingOffsetsError(f"{what} lacks {gap}")


EMPTY = Look(0, 0, 0)


def following(look=EMPTY, *, check_gap=refuse_gap, **settings):
    follow = Follow(WHAT, check_gap, **settings)
    follow.looked(look)
    return follow


AB = batch(8, b"a", b"b")
OURS = answer(9, AB)
ENDED = UUID("00000000-0000-0000-0000-00000000000e")


def end_at(offset, topic_id=ENDED):
    data = encode_mirror_end(topic_id, timestamp_ms=1000)
    place = placed(read_header(data), offset, 0)
    return answer(offset, place + data[len(place) :])


LOOKS = {
    # target start and end, source start; the comparison; options → where it goes on, or a word of the sentence
    "nothing is there": (Look(0, 0, 0), (), 0),
    "an empty target joins at the source's start": (Look(0, 0, 70), (), 70),
    "the target's log was emptied by retention": (Look(10, 10, 0), (), 10),
    "the same last batch": (Look(0, 10, 0, OURS, answer(9, AB)), (), 10),
    "another last batch": (Look(0, 10, 0, OURS, answer(9, batch(8, b"a", b"x"))), (), "cut"),
    "the source ends below": (Look(0, 10, 0, OURS, None), (), "cut"),
    "the source does not show it yet": (Look(0, 10, 0, OURS, answer(9)), (), None),
    "the source begins where the target ends": (Look(0, 10, 10), (), 10),
    "the source begins above": (Look(0, 10, 15), (), "deleted offsets 10-14"),
    "that is accepted": (Look(0, 10, 15), (Accept.LOST_OFFSETS,), 15),
    "another option does not help": (Look(0, 10, 15), (Accept.TRUNCATED_LOG,), "--accept-lost-offsets"),
    "the mirroring has ended, and all is deleted": (
        Look(0, 10, 15, end_at(9), topic_id=str(ENDED)),
        (Accept.LOST_OFFSETS,),
        "mirroring has ended at offset 10",
    ),
    "the same, up to the target's end": (Look(0, 10, 10, end_at(9), topic_id=str(ENDED)), (), "has ended at offset 10"),
    "the same, of a topic whose id is not known": (Look(0, 10, 10, end_at(9)), (), "has ended at offset 10"),
    "another topic's mirroring has ended": (Look(0, 10, 10, end_at(9, UUID(int=1)), topic_id=str(ENDED)), (), 10),
    "an end before the last batch": (Look(0, 10, 10, answer(9, end_at(7).records, AB), topic_id=str(ENDED)), (), 10),
    "the end came back from the source": (Look(0, 10, 0, end_at(9), end_at(9), topic_id=str(ENDED)), (), 10),
    "recreated": (Look(0, 10, 0, OURS, answer(9, AB), is_recreated=True), (), "created again"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_decides(name):
    look, accepted, expected = LOOKS[name]
    follow = following(look, accepted=frozenset(accepted))
    if isinstance(expected, str):
        assert follow.phase is Phase.STOPPED
        assert expected in follow.stop.reason
    elif expected is None:
        assert follow.wants_look
    else:
        assert (follow.phase, follow.next_offset) == (Phase.RUN, expected)


OUTSIDE = {
    # the look after the source has said that offset 10, the end of a target that retention has emptied, is none of it
    "the source was cut": (Look(10, 10, 0), "cut below offset 10"),
    "the source has deleted it": (Look(10, 10, 15), "deleted offsets 10-14"),
    "another instance has gone on": (Look(12, 12, 0), 12),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_source_without_the_end_of_an_emptied_target_was_cut(name):
    look, expected = OUTSIDE[name]
    follow = following(Look(10, 10, 0))
    follow.fetched(OffsetOutOfRangeError("fetch of t-0 at offset 10"))
    follow.looked(look)
    if isinstance(expected, int):
        assert (follow.phase, follow.next_offset) == (Phase.RUN, expected)
    else:
        assert follow.phase is Phase.STOPPED
        assert expected in follow.stop.reason


def test_a_new_log_may_begin_later():
    assert following(Look(0, 0, 20), start_offset=50).next_offset == 50
    assert following(Look(0, 0, 20), start_offset=5).next_offset == 20


def test_pieces_follow_one_another_while_the_first_is_appended():
    follow = following()
    follow.fetched(answer(0, batch(0, b"a", b"b"), batch(2, b"c")))
    first = follow.piece
    assert (first.end_offset, first.next_offset, first.record_count, first.newest_ms) == (0, 3, 3, 1002)
    follow.fetched(answer(3, batch(3, b"d")))
    assert not follow.wants_fetch
    assert follow.appended(3, None) is first
    assert (follow.piece.end_offset, follow.mirrored_end, follow.next_offset) == (3, 3, 4)


def test_a_batch_that_is_cut_off_is_fetched_again():
    follow = following()
    follow.fetched(answer(0, batch(0, b"a"), batch(1, b"b")[:-1]))
    assert (follow.piece.next_offset, follow.next_offset) == (1, 1)


@pytest.mark.parametrize(
    ("look", "piece_end"),
    [(Look(0, 10, 50), 10), (Look(50, 50, 50), 50)],
    ids=["behind lost offsets", "of an empty log that begins there"],
)
def test_the_first_batch_may_begin_below_the_start(look, piece_end):
    follow = following(look, accepted=frozenset({Accept.LOST_OFFSETS}))
    assert follow.mirrored_end == 50
    follow.fetched(answer(50, batch(48, b"a", b"b", b"c")))
    assert (follow.piece.end_offset, follow.piece.next_offset) == (piece_end, 51)


BEGINS = {
    "a source that has deleted its first records": (Look(0, 0, 50), 0),
    "a topic that is mirrored from now on": (Look(0, 0, 0), 50),
    "a target that retention has emptied, and lost offsets": (Look(10, 10, 50), 0),
}


@pytest.mark.parametrize("name", BEGINS)
def test_an_empty_log_begins_before_anything_comes(name):
    look, start_offset = BEGINS[name]
    follow = following(look, accepted=frozenset({Accept.LOST_OFFSETS}), start_offset=start_offset)
    first = follow.piece
    assert (first.end_offset, bytes(first.records), first.log_start_offset) == (look.target_end, b"", 50)
    assert follow.mirrored_end == look.target_end
    follow.fetched(answer(50, batch(48, b"a", b"b", b"c")))
    assert follow.appended(50, None) is first
    assert follow.mirrored_end == 50
    assert (follow.piece.end_offset, follow.piece.next_offset) == (50, 51)
    assert follow.appended(51, None).log_start_offset == -1


def test_gaps_are_compactions_or_stop_the_partition():
    allowed = []
    follow = following(check_gap=lambda what, gap: allowed.append(gap))
    follow.fetched(answer(0, batch(0, b"a"), batch(5, b"f")))
    assert [tuple(gap) for gap in allowed] == [(1, 5)]
    assert follow.piece.next_offset == 6

    follow = following()
    follow.fetched(answer(0, batch(0, b"a"), batch(5, b"f")))
    assert "damaged" in follow.stop.reason
    assert follow.piece is None


def test_a_gap_that_can_not_be_explained_now_is_looked_at_again():
    def away(what, gap):
        raise BrokerUnreachableError("nobody answers")

    follow = following(check_gap=away)
    follow.fetched(answer(0, batch(0, b"a"), batch(5, b"f")))
    assert follow.wants_look
    assert follow.piece is None


STOPPING = [
    CorruptRecordError("damage"),
    RecordTooLargeError("large"),
    answer(0, batch(0, b"a"), batch(0, b"a")),
]


@pytest.mark.parametrize("event", STOPPING, ids=["corrupt", "too large", "offsets that don't rise"])
def test_damage_at_the_source_stops_the_partition(event):
    follow = following()
    follow.fetched(event)
    assert follow.phase is Phase.STOPPED
    assert "t-0: the source's log is damaged" in follow.stop.reason


def test_what_was_committed_while_the_source_read_is_asked_for_again():
    """The source noted its high watermark before it read; that of the answer after it can't lie below a batch again."""
    follow = following()
    follow.fetched(answer(0, batch(0, b"a"), batch(1, b"b", b"c"), end=2))
    follow.fetched(answer(1, batch(1, b"b", b"c"), end=3))
    assert follow.piece.next_offset == 1
    follow.appended(1, None)
    assert follow.piece.next_offset == 3
    for _ in range(2):
        assert follow.phase is Phase.RUN
        follow.fetched(answer(3, batch(3, b"d"), end=3))
    assert follow.stop.reason == (
        "t-0: the source's log is damaged: a batch says that it ends at offset 4, the log ends at 3"
    )


@pytest.mark.parametrize("error", [NotLeaderError("moved"), OffsetOutOfRangeError("gone"), BrokerUnreachableError("")])
def test_other_errors_of_a_fetch_are_followed_by_a_look(error):
    follow = following()
    follow.fetched(answer(0, batch(0, b"a")))
    follow.fetched(error)
    assert (follow.phase, follow.piece, follow.trouble) == (Phase.CHECK, None, error)


def test_another_leader_epoch_is_followed_by_a_look_once():
    follow = following()
    follow.fetched(answer(0, batch(0, b"a", epoch=3)))
    follow.appended(1, None)
    follow.fetched(answer(1, batch(1, b"b", epoch=4)))
    assert follow.wants_look
    follow.looked(Look(0, 1, 0, answer(0, batch(0, b"a")), answer(0, batch(0, b"a", epoch=3))))
    follow.fetched(answer(1, batch(1, b"b", epoch=4)))
    assert follow.piece.next_offset == 2


APPENDED = {
    "another end": (7, None, Phase.CHECK),
    "moved": (0, NotLeaderError("moved"), Phase.CHECK),
    "the expected end is not the log's": (0, OffsetOutOfRangeError("no"), Phase.CHECK),
    "damaged on its way": (0, CorruptRecordError("crc"), Phase.CHECK),
    "no mirrored topic any more": (0, PolicyViolationError("ordinary"), Phase.STOPPED),
    "too large": (0, RecordTooLargeError("large"), Phase.STOPPED),
}


@pytest.mark.parametrize("name", APPENDED)
def test_an_append_that_did_not_happen(name):
    end_offset, error, phase = APPENDED[name]
    follow = following()
    follow.fetched(answer(0, batch(0, b"a")))
    assert follow.appended(end_offset, error) is None
    assert (follow.phase, follow.piece) == (phase, None)
    assert phase is Phase.CHECK or "the target refuses" in follow.stop.reason


def test_damage_that_the_target_finds_is_the_sources():
    follow = following()
    data = bytearray(batch(0, b"abc"))
    data[-2] ^= 1
    follow.fetched(answer(0, bytes(data)))
    follow.appended(0, CorruptRecordError("crc"))
    assert "the source's log is damaged" in follow.stop.reason


def test_a_batch_above_the_high_watermark_is_left_for_the_next_answer():
    first, second = batch(0, b"a"), batch(1, b"b")
    follow = following()
    follow.fetched(answer(0, first, second, end=1))
    assert (follow.piece.next_offset, bytes(follow.piece.records)) == (1, first)
    assert (follow.next_offset, follow.phase) == (1, Phase.RUN)
    follow.fetched(answer(1, second, end=2))
    assert follow.next_offset == 2
    follow = following()
    follow.fetched(answer(0, first, end=0))
    assert (follow.piece, follow.phase) == (None, Phase.RUN)
    follow.fetched(answer(0, first, end=0))
    assert "ends at offset 1, the log ends at 0" in follow.stop.reason
