"""Transactions from their beginning to their end: producers of transactional ids, partitions and groups in them."""

from differential.scenario import scenario
from differential.transactional_client import LONG_MS, NOBODY, client_for, state

FIRST_BATCHED = 4  # of AddPartitionsToTxn


# InitProducerId


def asked_init(client, *, producer=NOBODY, transactional_id=None, timeout_ms=LONG_MS):
    return {
        "transactionalId": client.id if transactional_id is None else transactional_id,
        "transactionTimeoutMs": timeout_ms, "producerId": producer[0], "producerEpoch": producer[1],
    }  # fmt: skip


@scenario("InitProducerId", "of a transactional id, again and again")
def init_again(session):
    client = client_for(session)
    for _ in range(3):
        client.ask(asked_init(client))


@scenario("InitProducerId", "with another timeout")
def init_timeouts(session):
    client = client_for(session)
    for timeout_ms in (0, -1, 900_000, 900_001, 2**31 - 1):
        client.ask(asked_init(client, timeout_ms=timeout_ms))


@scenario("InitProducerId", "of who it has been", first=3)
def init_expected(session):
    client = client_for(session).init()
    first = client.producer
    for producer in (first, first, (first[0], 1), (first[0], 0), (first[0], 9), (first[0] + 10**9, 1)):
        client.ask(asked_init(client, producer=producer))


@scenario("InitProducerId", "of a new id by who has been another", first=3)
def init_unknown(session):
    client = client_for(session)
    client.ask(asked_init(client, producer=(10**9, 5)))
    client.ask(asked_init(client, producer=(10**9, 5)))


@scenario("InitProducerId", "inside a transaction")
def init_fences(session):
    client = client_for(session).init()
    topic = session.topic()
    client.add(topic).produce(topic, 1)
    client.ask(asked_init(client))
    client.settled()
    client.ask(asked_init(client))
    client.seen(topic)


@scenario("InitProducerId", "inside a transaction, of its own producer", first=3)
def init_own_fence(session):
    client = client_for(session).init()
    topic = session.topic()
    client.add(topic).produce(topic, 1)
    client.ask(asked_init(client, producer=client.producer))
    client.settled()
    client.ask(asked_init(client, producer=client.producer))
    client.ask(asked_init(client))


@scenario("InitProducerId", "after a transaction")
def init_after(session):
    client = client_for(session).init()
    topic = session.topic()
    client.add(topic).produce(topic, 1).end()
    client.ask(asked_init(client))


# AddPartitionsToTxn


def asked_add(client, topics, names=None, *, verify_only=False):
    names = names or client.names
    wanted = [{"name": topic, "partitions": partitions} for topic, partitions in topics]
    if client.session.version < FIRST_BATCHED:
        return {
            "v3AndBelowTransactionalId": names["transactionalId"], "v3AndBelowProducerId": names["producerId"],
            "v3AndBelowProducerEpoch": names["producerEpoch"], "v3AndBelowTopics": wanted,
        }  # fmt: skip
    return {"transactions": [{**names, "verifyOnly": verify_only, "topics": wanted}]}


def added(name, topics, *, changed=None, first=0):
    """Adds a row of one request for (topic or None, indexes) each, with `changed` fields; None is a new topic."""

    def run(session):
        client = client_for(session).init()
        topic = session.topic(partitions=3)
        wanted = [(topic if one is None else one, partitions) for one, partitions in topics]
        names = client.changed(**changed) if changed else None
        client.ask(asked_add(client, wanted, names))
        session.note(state(session, client))

    scenario("AddPartitionsToTxn", name, first=first)(run)


added("two partitions", [(None, [0, 2])])
added("no topics", [])
added("no partitions", [(None, [])])
added("an unknown topic beside a known one", [(None, [0]), ("nowhere", [0])])
added("an unknown partition", [(None, [0, 3, -1])])
added("of internal topics", [(None, [0]), ("__transaction_state", [0])], first=0)
added("of an unknown transactional id", [(None, [0])], changed={"transactional_id": "unheard-of"})
added("of an empty transactional id", [(None, [0])], changed={"transactional_id": ""})
added("of another producer", [(None, [0])], changed={"producer_id": 10**9})
added("of a newer epoch", [(None, [0])], changed={"epoch": 1})
added("of an older epoch", [(None, [0])], changed={"epoch": -1})


@scenario("AddPartitionsToTxn", "twice, and more, and after the end")
def add_twice(session):
    client = client_for(session).init()
    topic = session.topic(partitions=2)
    client.ask(asked_add(client, [(topic, [0])]))
    client.ask(asked_add(client, [(topic, [0])]))
    client.ask(asked_add(client, [(topic, [1])]))
    client.settled()


@scenario("AddPartitionsToTxn", "only verified", first=FIRST_BATCHED)
def verified(session):
    client = client_for(session).init()
    topic = session.topic(partitions=2)
    client.ask(asked_add(client, [(topic, [0])], verify_only=True))
    client.add(topic)
    client.ask(asked_add(client, [(topic, [0])], verify_only=True))
    client.ask(asked_add(client, [(topic, [0, 1])], verify_only=True))
    client.ask(asked_add(client, [(topic, [0])], client.changed(epoch=1), verify_only=True))
    client.ask(asked_add(client, [(topic, [0])], client.changed(producer_id=10**9), verify_only=True))
    client.ask(asked_add(client, [(topic, [0])], client.changed(transactional_id="unheard-of"), verify_only=True))
    client.ask(asked_add(client, [(topic, [0])], client.changed(transactional_id=""), verify_only=True))
    client.ask(asked_add(client, [(topic, [0]), ("nowhere", [0])], verify_only=True))


# AddOffsetsToTxn


@scenario("AddOffsetsToTxn", "a group, twice")
def add_group(session):
    client = client_for(session).init()
    for group in ("some-group", "some-group", ""):
        client.ask(client.names, groupId=group)


@scenario("AddOffsetsToTxn", "of others")
def add_group_of_others(session):
    client = client_for(session).init()
    for changed in ({"transactional_id": "unheard-of"}, {"transactional_id": ""}, {"producer_id": 10**9}, {"epoch": 1}):
        client.ask(client.changed(**changed), groupId="some-group")


# EndTxn


def ended(name, *commits, first=0, last=1 << 15, produce=True):
    """A transaction with records, and each of these ends by the same producer."""

    def run(session):
        client = client_for(session).init()
        topic = session.topic()
        if produce:
            client.add(topic).produce(topic, 1, 2)
        for commit in commits:
            answer = client.ask(client.names, committed=commit)
            client.settled()
            if answer.get("producerEpoch", -1) >= 0 and answer["errorCode"] == 0 and not first:
                client.producer = answer["producerId"], answer["producerEpoch"]
        client.seen(topic)
        session.note(state(session, client))

    scenario("EndTxn", name, first=first, last=last)(run)


for _name, _commits in {
    "commit": [True], "abort": [False], "commit twice": [True, True], "abort twice": [False, False],
    "commit, then abort": [True, False], "abort, then commit": [False, True],
}.items():  # fmt: skip
    ended(_name, *_commits)
ended("commit of nothing", True, produce=False)
ended("abort of nothing", False, produce=False)
ended("the same request again", True, True, first=5)
ended("another end by the same epoch", True, False, first=5)
ended("an abort again", False, False, first=5)


@scenario("EndTxn", "of others")
def end_of_others(session):
    client = client_for(session).init()
    topic = session.topic()
    client.add(topic).produce(topic, 1)
    for changed in (
        {"transactional_id": "unheard-of"}, {"transactional_id": ""}, {"producer_id": 10**9}, {"epoch": 1},
        {"epoch": -1},
    ):  # fmt: skip
        client.ask(client.changed(**changed), committed=True)


@scenario("EndTxn", "of a fenced instance")
def end_of_fenced(session):
    first = client_for(session).init()
    topic = session.topic()
    first.add(topic).produce(topic, 1)
    client_for(session).init()
    first.ask(first.names, committed=True)
    first.seen(topic)


@scenario("EndTxn", "transactions in a row", first=5)
def end_in_a_row(session):
    client = client_for(session).init()
    topic = session.topic()
    for commit in (True, False, True):
        session.call("AddPartitionsToTxn", 5, transactions=[
            {**client.names, "verifyOnly": False, "topics": [{"name": topic, "partitions": [0]}]}])  # fmt: skip
        client.produce(topic, 1)
        answer = client.ask(client.names, committed=commit)
        client.producer = answer["producerId"], answer["producerEpoch"]
        client.settled()
    client.seen(topic)
    session.note(state(session, client))


@scenario("EndTxn", "of KIP-890 after its transaction has timed out", first=5)
@scenario("EndTxn", "after its transaction has timed out", last=4)
def end_too_late(session):
    for commit in (True, False):
        client = client_for(session, suffix=str(commit), timeout_ms=1).init()
        topic = session.topic(str(commit))
        client.add(topic)
        session.until(lambda: state(session, client)["state"], lambda name: name == "CompleteAbort")  # noqa: B023
        client.ask(client.names, committed=commit)
        session.note(state(session, client))
        client.ask(asked_add_plain(client, topic), api="AddPartitionsToTxn", version=3)
        client.ask(asked_init(client, producer=client.producer), api="InitProducerId", version=4)
        client.ask(asked_init(client), api="InitProducerId", version=4)


def asked_add_plain(client, topic):
    return {
        "v3AndBelowTransactionalId": client.id, "v3AndBelowProducerId": client.producer[0],
        "v3AndBelowProducerEpoch": client.producer[1], "v3AndBelowTopics": [{"name": topic, "partitions": [0]}],
    }  # fmt: skip
