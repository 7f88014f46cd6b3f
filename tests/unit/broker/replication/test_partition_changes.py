"""Sessions of followers read what has changed, what the request names, and what is left; all of it twice a second."""

from itertools import count
from uuid import UUID

import pytest

from millrace.errors import ErrorCode
from millrace.wire.fetch import FetchPartition, PartitionFetched, PartitionKey
from millrace_broker.replication.fetch_sessions import READ_ALL_INTERVAL_MS, FetchSessions, PartitionChanges

A, B, C = (PartitionKey(UUID(int=7), index) for index in range(3))
ALL = [A, B, C]


def fetched(*keys):
    return [(key, PartitionFetched(key.partition, 0, 10, 10, 0, b"")) for key in keys]


class Follower:
    """A follower of three partitions, whose session has been read in full."""

    def __init__(self, kept=100, **session):
        ids = count(1)
        self.changes = PartitionChanges(kept)
        self.sessions = FetchSessions(10, lambda: next(ids), self.changes)
        self.settings = {"uses_topic_ids": True, "is_followers": True} | session
        self.now_ms, self.session_id, self.epoch = 5000, 0, 0
        self.answer(self.fetch(*ALL), *ALL)
        self.answer(self.fetch(), *ALL)

    def fetch(self, *named, forgotten=()):
        wanted = {key: FetchPartition(0, 1000) for key in named}
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self.sessions.context(self.session_id, epoch, wanted, forgotten, now_ms=self.now_ms, **self.settings)

    def answer(self, context, *keys, again=()):
        answer = context.respond(fetched(*keys), self.now_ms, again)
        assert answer.error_code == ErrorCode.NONE
        self.session_id = answer.session_id


def test_changes_are_told_in_their_order_while_they_are_kept():
    changes = PartitionChanges(3)
    assert changes.since(0) == []
    for key in (A, B, A):
        changes.note(key)
    assert changes.since(0) == [A, B, A]
    assert changes.since(2) == [A]
    changes.note(C)
    assert changes.since(1) == [B, A, C]
    assert changes.since(0) is None


def test_only_what_has_changed_is_read():
    follower = Follower()
    assert dict(follower.fetch().wanted) == {}
    follower.changes.note(B)
    follower.changes.note(PartitionKey(UUID(int=8), 0))  # which this follower does not follow
    context = follower.fetch(A)
    assert list(context.wanted) == [A, B]
    follower.answer(context, A, B)
    assert dict(follower.fetch().wanted) == {}


def test_what_has_more_to_read_is_read_again_before_what_changes_later():
    follower = Follower()
    follower.changes.note(B)
    follower.answer(follower.fetch(), B, again=[B])
    follower.changes.note(A)
    assert list(follower.fetch().wanted) == [B, A]


def test_what_is_not_answered_is_read_for_the_next_request():
    follower = Follower()
    follower.changes.note(B)
    follower.fetch()  # its client has gone
    assert list(follower.fetch().wanted) == [B]


def test_what_changes_while_a_fetch_waits_is_told_once():
    follower = Follower()
    context = follower.fetch()
    assert context.is_told_of_changes
    follower.changes.note(C)
    assert list(context.changed()) == [C]
    assert list(context.changed()) == []


def test_a_forgotten_partition_is_not_read():
    follower = Follower()
    follower.changes.note(B)
    assert list(follower.fetch(forgotten=[B]).wanted) == []


def test_all_is_read_after_a_while():
    follower = Follower()
    follower.now_ms += READ_ALL_INTERVAL_MS - 1
    follower.answer(follower.fetch())
    follower.now_ms += 1
    follower.answer(context := follower.fetch(), *ALL)
    assert list(context.wanted) == ALL
    assert dict(follower.fetch().wanted) == {}


def test_all_is_read_where_the_changes_are_not_known_any_more():
    follower = Follower(kept=2)
    for _ in range(3):
        follower.changes.note(A)
    assert set(follower.fetch().wanted) == set(ALL)


@pytest.mark.parametrize("session", [{"is_followers": False}, {"uses_topic_ids": False}])
def test_other_sessions_read_all(session):
    follower = Follower(**session)
    context = follower.fetch()
    assert list(context.wanted) == ALL
    assert not context.is_told_of_changes
