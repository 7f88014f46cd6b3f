"""A consumer's session against a broker without sessions: what it knows in the end is the same, at no more answers."""

from collections import OrderedDict
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from millrace.wire.fetch import FetchPartition, PartitionFetched, PartitionKey
from millrace_broker.replication.fetch_sessions import FetchSessions

KEYS = [PartitionKey("t", index) for index in range(4)]
STEPS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(KEYS)),  # whose high watermark moves
        st.sets(st.sampled_from(KEYS)),  # what the consumer wants from now on
        st.sets(st.sampled_from(KEYS)),  # what gives records
        st.booleans(),  # whether the session is lost
    ),
    max_size=30,
)


def read(ends, records, wanted):
    return [
        (key, PartitionFetched(key.partition, 0, ends[key], ends[key], 0, b"r" if key in records else b""))
        for key in wanted
    ]


@given(STEPS)
def test_a_session_tells_all_that_changes_and_nothing_else(steps):
    ids = count(1)
    table = FetchSessions(1, lambda: next(ids))
    ends = dict.fromkeys(KEYS, 0)
    session_id, epoch, held, known = 0, 0, OrderedDict(), {}
    for moved, wants, gives, is_lost in steps:
        for key in moved:
            ends[key] += 1
        if is_lost:
            session_id, epoch = 0, 0
        added = {key: FetchPartition(0, 1) for key in KEYS if key in wants and (epoch == 0 or key not in held)}
        forgotten = [key for key in held if key not in wants] if epoch else []
        context = table.context(session_id, epoch, added, forgotten, uses_topic_ids=False, now_ms=0)
        if epoch == 0:
            held, known = OrderedDict(), {}
        for key in forgotten:
            del held[key]
            known.pop(key, None)
        held.update(added)
        assert set(context.wanted) == set(held) == wants
        if held:
            assert list(context.wanted) == list(held)
        answer = context.respond(read(ends, gives, context.wanted), 0)
        told = {key: one.high_watermark for key, one in answer.fetched}
        expected = {key for key in held if epoch == 0 or key in gives or known.get(key) != ends[key]}
        assert answer.error_code == 0
        assert set(told) == expected
        known |= told
        assert known == {key: ends[key] for key in held}
        if epoch:
            for key, one in answer.fetched:
                if one.records:
                    held.move_to_end(key)
        session_id = answer.session_id
        epoch = epoch + 1 if session_id else 0
        assert len(table) <= 1
