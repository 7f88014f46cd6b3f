"""The table of transactions: in each state each event does what its cell says, and nothing where there is none."""

from itertools import product

import pytest

from millrace.errors import ErrorCode
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.state import (
    COMPLETE,
    DECIDED,
    EPOCH_BUMP_VERSION,
    IDLE,
    NO_CLIENT_VERSION,
    OPEN,
    TRANSITIONS,
    Event,
    Producer,
    TransactionMetadata,
    TransactionState,
)
from millrace_broker.txns.transaction import End, InitProducer, Respond, Result, Transaction

NOW_MS, TIMEOUT_MS, FRESH_ID = 1_700_000_000_000, 60_000, 9
PRODUCER = Producer(7, 3)
STATES = (*OPEN, *IDLE)
REPEATED = (Event.COMMIT_AGAIN, Event.ABORT_AGAIN)
COMMITS = (Event.COMMIT, Event.COMMIT_AGAIN)


def transaction(state, event):
    """Returns one in a state; those whose ends are repeated come from clients that bump no epochs."""
    bumps = state not in DECIDED and event not in REPEATED
    metadata = TransactionMetadata(
        producer_id=PRODUCER.producer_id,
        producer_epoch=PRODUCER.epoch,
        timeout_ms=TIMEOUT_MS,
        state=state,
        partitions=frozenset() if state in IDLE else frozenset({TopicPartition("t", 0)}),
        start_timestamp_ms=NOW_MS,
        last_update_timestamp_ms=NOW_MS,
        client_version=EPOCH_BUMP_VERSION if bumps else NO_CLIENT_VERSION,
    )
    return Transaction("id", metadata)


def ends(event, client_version):
    request = End(PRODUCER, event in COMMITS, client_version)
    return lambda one: one.end("ticket", request, FRESH_ID, NOW_MS)


HAPPENS = {
    Event.INIT: lambda one: one.init_producer("ticket", InitProducer(TIMEOUT_MS), FRESH_ID, NOW_MS),
    Event.ADD: lambda one: one.add_partitions("ticket", PRODUCER, [TopicPartition("t", 1)], EPOCH_BUMP_VERSION, NOW_MS),
    Event.TIME_OUT: lambda one: one.time_out(NOW_MS + TIMEOUT_MS + 1),
    Event.MARKED: lambda one: one.marked(NOW_MS),
    Event.EXPIRE: lambda one: one.expire() if one.is_expired(NOW_MS, 0) else [],
    **{event: ends(event, EPOCH_BUMP_VERSION) for event in (Event.COMMIT, Event.ABORT_ANY)},
    **{event: ends(event, NO_CLIENT_VERSION) for event in (Event.ABORT, *REPEATED)},
}


@pytest.mark.parametrize(
    ("state", "event"),
    [(state, event) for state, event in product(STATES, Event) if event not in REPEATED or state in COMPLETE],
)
def test_an_event_does_what_the_table_says(state, event):
    effects = HAPPENS[event](transaction(state, event))
    after = TRANSITIONS.get((state, event))
    if after is None:
        assert effects == []
    elif isinstance(after, ErrorCode):
        assert [one.result.error for one in effects] == [after]
    elif event in REPEATED:
        assert (after, effects) == (state, [Respond("ticket", Result(ErrorCode.NONE, PRODUCER))])
    else:
        [store] = effects
        assert store.metadata.state is after if store.metadata else after is TransactionState.DEAD


def test_every_request_has_a_cell_in_every_state():
    requests = (Event.INIT, Event.ADD, Event.COMMIT, Event.ABORT, Event.ABORT_ANY)
    assert {(state, event) for state, event in product(STATES, requests)} <= TRANSITIONS.keys()


def test_every_state_leads_to_an_idle_one():
    for state in STATES:
        seen, left = set(), {state}
        while left:
            seen |= left
            left = {after for (one, _), after in TRANSITIONS.items() if one in left} - seen
        assert seen & set(COMPLETE)
