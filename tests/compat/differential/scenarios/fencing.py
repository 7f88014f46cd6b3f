"""Who may no longer: fenced instances, producers whose transaction has timed out, members of an older generation."""

from differential.scenario import scenario
from differential.scenarios.group_members import member_of
from differential.scenarios.transaction_begins_and_ends import asked_add, asked_init
from differential.scenarios.transaction_offsets_and_lists import asked_commit, group_of
from differential.scenarios.transactional_records import asked_produce
from differential.transactional_client import client_for, state


def fenced(session, *, group=None):
    """Returns (an instance inside a transaction, its topic) after another instance has taken over."""
    first, topic = client_for(session).init(), session.topic()
    first.add(topic).produce(topic, 1)
    if group is not None:
        first.add_offsets(group)
    client_for(session).init()
    return first, topic


def timed_out(session, *, group=None):
    """(a producer, its topic) after its transaction was open for too long."""
    client, topic = client_for(session, timeout_ms=1).init(), session.topic()
    client.add(topic) if group is None else client.add_offsets(group)  # one of them: it may time out before the other
    session.until(lambda: state(session, client)["state"], lambda name: name == "CompleteAbort")
    return client, topic


@scenario("InitProducerId", "of a fenced instance", first=3)
def init_of_fenced(session):
    first, topic = fenced(session)
    first.ask(asked_init(first, producer=first.producer))
    first.ask(asked_init(first))
    first.seen(topic)


@scenario("AddPartitionsToTxn", "of a fenced instance")
def add_of_fenced(session):
    first, topic = fenced(session)
    first.ask(asked_add(first, [(topic, [0])]))


@scenario("AddOffsetsToTxn", "of a fenced instance")
def add_offsets_of_fenced(session):
    first, _ = fenced(session)
    first.ask(first.names, groupId="some-group")


@scenario("TxnOffsetCommit", "of a fenced instance")
def commit_of_fenced(session):
    group = group_of(session)
    first, topic = fenced(session, group=group)
    first.ask(asked_commit(first, group, topic))


@scenario("TxnOffsetCommit", "after its transaction has timed out")
def commit_too_late(session):
    group = group_of(session)
    client, topic = timed_out(session, group=group)
    client.ask(asked_commit(client, group, topic))


@scenario("Produce", "after its transaction has timed out", first=3)
def produce_too_late(session):
    client, topic = timed_out(session)
    client.ask(asked_produce(client, topic, 1))
    client.seen(topic)


@scenario("AddPartitionsToTxn", "after its transaction has timed out")
def add_too_late(session):
    client, topic = timed_out(session)
    client.ask(asked_add(client, [(topic, [0])]))


@scenario("TxnOffsetCommit", "by a member of a group", first=3)
def commit_of_member(session):
    """Of its generation, of others, and as another instance (KIP-447)."""
    client, topic, group = client_for(session).init(), session.topic(), group_of(session)
    client.add_offsets(group)
    member_id, generation = member_of(session, group, instance="i")
    for member in (
        {"generationId": generation, "memberId": member_id, "groupInstanceId": "i"},
        {"generationId": generation, "memberId": member_id},
        {"generationId": generation + 1, "memberId": member_id, "groupInstanceId": "i"},
        {"generationId": generation - 1, "memberId": member_id},
        {"generationId": generation, "memberId": "nobody"},
        {"generationId": generation, "memberId": "nobody", "groupInstanceId": "i"},
        {"generationId": generation, "memberId": member_id, "groupInstanceId": "j"},
        {"generationId": -1, "memberId": ""},
    ):
        client.ask(asked_commit(client, group, topic, **member))


@scenario("WriteTxnMarkers", "of several producers")
def several_markers(session):
    one, other = client_for(session, suffix="one").init(), client_for(session, suffix="other").init()
    other.ids = one.ids
    other.ids.named({"producerId": other.producer[0]})
    topic = session.topic(partitions=2)
    one.add(topic).produce(topic, 1)
    other.add(topic, 0, 1).produce(topic, 2)

    def marker(client, commit, *indexes):
        return {
            "producerId": client.producer[0], "producerEpoch": client.producer[1], "transactionResult": commit,
            "coordinatorEpoch": 0, "topics": [{"name": topic, "partitionIndexes": list(indexes)}],
        }  # fmt: skip

    one.ask({"markers": [marker(one, True, 0), marker(other, False, 0, 1)]})
    one.seen(topic)


@scenario("DescribeProducers", "inside a transaction, and after it")
def describe_amid(session):
    client, topic = client_for(session).init(), session.topic()

    def ask():
        session.ask(
            {"topics": [{"name": topic, "partitionIndexes": [0]}]}, keep=lambda one: client.ids.named(timeless(one))
        )

    client.add(topic).produce(topic, 1)
    ask()
    client.end()
    ask()


def timeless(value):
    """The marker's time is the broker's."""
    if isinstance(value, dict):
        return {key: one > 0 if key == "lastTimestamp" else timeless(one) for key, one in value.items()}
    return [timeless(one) for one in value] if isinstance(value, list) else value
