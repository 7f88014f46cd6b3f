"""A follower's fetch session against the leader's table: the leader always reads exactly what the follower wants.

Answers get lost, leaders forget sessions, and partitions come and go.
"""

from itertools import count
from random import Random
from uuid import UUID

import pytest

from millrace.config import MAX_INT
from millrace.errors import ErrorCode
from millrace.wire.fetch import FetchPartition, PartitionFetched, PartitionKey
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.replication.follower_session import Asked, FollowerSession

KEYS = [PartitionKey(UUID(int=1 + number % 2), number) for number in range(6)]


def asked_of(chance):
    return {key: Asked(chance.randrange(3), 0, 1, 0) for key in KEYS if chance.random() < 0.8}


def exchanged(table, session, asked):
    """Sends one request to the leader's table; returns (its context, the answer)."""
    request = session.request(asked)
    wanted = {key: FetchPartition(one.fetch_offset, 1) for key, one in request.asked.items()}
    context = table.context(
        request.session_id, request.session_epoch, wanted, request.forgotten, uses_topic_ids=True, now_ms=0
    )
    fetched = [(key, PartitionFetched(key.partition, 0, 0, 0, 0, b"")) for key in context.wanted]
    return context, context.respond(fetched, 0)


@pytest.mark.parametrize("seed", range(100))
def test_a_leader_reads_what_its_follower_wants(seed):
    chance = Random(seed)
    ids = count(1)
    slots = chance.choice([0, 1, 5])
    table, session = FetchSessions(slots, lambda: next(ids)), FollowerSession()
    asked, incremental = asked_of(chance), 0
    for _ in range(50):
        if chance.random() < 0.5:
            asked = asked_of(chance) or asked
        if chance.random() < 0.05:
            table = FetchSessions(slots, lambda: next(ids))
        context, answer = exchanged(table, session, asked)
        if chance.random() < 0.05:
            session.failed()
        elif answer.error_code:
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            session.failed(answer.error_code)
        else:
            assert {key: one.fetch_offset for key, one in context.wanted.items()} == {
                key: one.fetch_offset for key, one in asked.items()
            }
            incremental += context.kind == "incremental"
            session.answered(answer.session_id)
    assert bool(incremental) == bool(slots)


def test_the_epoch_begins_again_after_the_largest():
    session = FollowerSession()
    session.request({})
    session.answered(7)
    session._epoch = MAX_INT
    assert session.request({}).session_epoch == MAX_INT
    session.answered(7)
    assert session.request({}) == (7, 1, {}, ())
