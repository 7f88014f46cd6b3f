"""The table of fetch sessions: every row of its module's text, as transcripts (KIP-227)."""

from itertools import count
from uuid import UUID

import pytest

from millrace.config import MAX_INT
from millrace.errors import ErrorCode
from millrace.wire.fetch import NO_SESSION, FetchPartition, PartitionFetched, PartitionKey
from millrace_broker.replication import fetch_sessions
from millrace_broker.replication.fetch_sessions import EVICTION_MS, FetchSessions, next_epoch

A, B, C = (PartitionKey("events", index) for index in range(3))


def wanted(*keys, offset=0):
    return {key: FetchPartition(offset, 1000) for key in keys}


def fetched(key, *, high_watermark=10, log_start=0, records=b"", error=0, diverging=None):
    return key, PartitionFetched(
        key.partition, error, high_watermark, high_watermark, log_start, records, diverging_epoch=diverging
    )


class Table:
    """A table whose clock and ids are in the test's hands."""

    def __init__(self, slots=2):
        ids = count(1)
        self.sessions = FetchSessions(slots, lambda: next(ids))
        self.now_ms = 1000

    def context(self, session_id, epoch, keys=(), forgotten=(), *, ids=False, is_followers=False):
        return self.sessions.context(
            session_id, epoch, wanted(*keys), forgotten,
            uses_topic_ids=ids, now_ms=self.now_ms, is_followers=is_followers,
        )  # fmt: skip

    def begin(self, *keys, ids=False, is_followers=False):
        context = self.context(0, 0, keys, ids=ids, is_followers=is_followers)
        return context.respond([fetched(key) for key in keys], self.now_ms).session_id

    def answer(self, context, *results):
        answer = context.respond(results, self.now_ms)
        return answer.error_code, answer.session_id, [key for key, _ in answer.fetched]


@pytest.fixture
def table():
    return Table()


def test_a_final_epoch_is_answered_in_full_without_a_session(table):
    context = table.context(0, -1, [A, B])
    assert table.answer(context, fetched(A), fetched(B)) == (0, 0, [A, B])
    assert len(table.sessions) == 0


def test_an_initial_epoch_begins_a_session_and_its_first_request_has_epoch_1(table):
    session = table.begin(A, B)
    assert session > 0
    assert table.answer(table.context(session, 1), fetched(A), fetched(B)) == (0, session, [])


@pytest.mark.parametrize(
    "news",
    [{"records": b"x"}, {"high_watermark": 11}, {"log_start": 3}, {"error": 3}, {"diverging": (1, 5)}],
    ids=str,
)
def test_only_partitions_with_news_are_answered(table, news):
    session = table.begin(A, B)
    assert table.answer(table.context(session, 1), fetched(A), fetched(B, **news)) == (0, session, [B])


@pytest.mark.parametrize("untaken", [{"error": 3}, {"diverging": (1, 5)}], ids=str)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_offsets_that_the_client_could_not_take_are_answered_again(table, untaken, is_first):
    first = table.context(0, 0, [A])
    session = first.respond([fetched(A, **(untaken if is_first else {}))], table.now_ms).session_id
    if not is_first:
        table.answer(table.context(session, 1), fetched(A, **untaken))
    epoch = 1 if is_first else 2
    assert table.answer(table.context(session, epoch), fetched(A)) == (0, session, [A])
    assert table.answer(table.context(session, epoch + 1), fetched(A)) == (0, session, [])


def test_a_request_adds_changes_and_forgets_partitions(table):
    session = table.begin(A, B)
    context = table.sessions.context(
        session, 1, wanted(B, C, offset=7), [A], uses_topic_ids=False, now_ms=table.now_ms
    )  # fmt: skip
    assert context.wanted == wanted(B, C, offset=7)
    assert table.answer(context, fetched(B), fetched(C)) == (0, session, [C])


def test_a_partition_that_gave_records_goes_behind_the_others(table):
    session = table.begin(A, B, C)
    table.answer(table.context(session, 1), fetched(A, records=b"x"), fetched(B), fetched(C))
    assert list(table.context(session, 2).wanted) == [B, C, A]


def test_what_does_not_fit_its_session_is_refused(table):
    session = table.begin(A)
    for context, code in [
        (table.context(session + 1, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (table.context(session, 2), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (table.context(session, 1, ids=True), ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ]:
        assert context.wanted == {}
        assert table.answer(context) == (code, 0, [])
    by_id = PartitionKey(UUID(int=7), 0)
    session = table.begin(by_id, ids=True)
    assert table.answer(table.context(session, 1)) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, [])


def test_a_request_that_was_overtaken_is_refused(table):
    session = table.begin(A)
    slow, fast = table.context(session, 1), table.context(session, 2)
    assert table.answer(slow, fetched(A)) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session, [])
    assert table.answer(fast, fetched(A)) == (0, session, [])


def test_a_full_request_ends_the_session_that_it_names(table):
    first, second = table.begin(A), table.begin(B)
    table.context(first, -1, [A])
    table.context(second, 0, [B])
    assert len(table.sessions) == 0


def test_a_session_without_partitions_ends(table):
    session = table.begin(A)
    assert table.answer(table.context(session, 1, [], [A])) == (0, 0, [])
    assert len(table.sessions) == 0


def test_a_full_table_gives_no_session_to_younger_ones(table):
    table.begin(A), table.begin(B)
    assert table.begin(A, B, C) == 0
    assert (len(table.sessions), table.sessions.evictions) == (2, 0)


def test_a_session_that_was_silent_makes_room(table):
    silent, busy = table.begin(A), table.begin(B)
    table.now_ms += EVICTION_MS
    table.context(busy, 1)
    assert table.begin(C) == 0
    table.now_ms += 1
    assert table.begin(C) > 0
    assert table.answer(table.context(silent, 1))[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert table.answer(table.context(busy, 2), fetched(B)) == (0, busy, [])


def test_an_old_session_gives_way_to_a_larger_one_only(table):
    large, small = table.begin(A, B), table.begin(A)
    table.now_ms += EVICTION_MS + 1
    table.context(large, 1), table.context(small, 1)
    assert table.begin() == 0
    assert table.begin(A, B, C) > 0
    assert table.answer(table.context(small, 2))[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert table.sessions.partition_count == 5


def test_no_slots_mean_no_sessions():
    assert Table(slots=0).begin(A) == 0


def test_epochs_begin_anew_after_the_last():
    assert [next_epoch(epoch) for epoch in (0, 1, MAX_INT - 1, MAX_INT)] == [1, 2, MAX_INT, 1]


def test_sessions_keep_no_more_partitions_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 3)
    table = Table()
    first = table.begin(A, B)
    assert table.begin(B, C) == NO_SESSION
    assert table.begin(C) != NO_SESSION
    grown = table.context(first, 1, [C])
    assert grown.respond([], 0).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert table.sessions.partition_count == 1


def test_a_follower_takes_the_place_of_the_smallest_consumer_and_of_no_follower(table):
    larger, smaller = table.begin(A, B), table.begin(C)
    first = table.begin(A, is_followers=True)
    assert table.context(smaller, 1).kind == "refused"
    second = table.begin(A, B, C, is_followers=True)
    assert table.context(larger, 1).kind == "refused"
    assert table.begin(A, is_followers=True) == NO_SESSION
    assert [table.context(session, 1).kind for session in (first, second)] == ["incremental"] * 2


def test_a_consumer_takes_no_place_of_a_follower_that_fetches(table):
    followers = [table.begin(A, is_followers=True) for _ in range(2)]
    table.now_ms += EVICTION_MS + 1
    assert [table.context(session, 1).kind for session in followers] == ["incremental"] * 2
    assert table.begin(A, B, C) == NO_SESSION
    assert table.begin(A, B, C, is_followers=True) != NO_SESSION
