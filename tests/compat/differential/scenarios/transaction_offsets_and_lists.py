"""Scenarios that commit offsets in transactions, write markers, and list and describe transactions as tools do."""

from differential.scenario import scenario
from differential.transactional_client import Client, client_for

UNSTABLE_OFFSET_COMMIT = 88


# TxnOffsetCommit


def asked_commit(client, group, topic, *, partition=0, offset=5, metadata="", names=None, **member):
    wanted = {"partitionIndex": partition, "committedOffset": offset, "committedLeaderEpoch": -1,
              "committedMetadata": metadata}  # fmt: skip
    member = member if client.session.version >= 3 else {}
    return {**(names or client.names), "groupId": group, **member, "topics": [{"name": topic, "partitions": [wanted]}]}


def group_of(session):
    name = f"group-{session.name}"
    session.until(
        lambda: session.call("FindCoordinator", 1, key=name, keyType=0), lambda answer: answer["errorCode"] == 0
    )
    return name


def fetched(session, group, topic):
    """Compared: what is committed, stable or not."""
    for stable in (False, True):
        topics = [{"name": topic, "partitionIndexes": [0]}]
        session.ask({"groupId": group, "topics": topics, "requireStable": stable}, api="OffsetFetch", version=7)


def await_stable(session, group, topic):
    """3.9 lets the offsets count a moment after their partition has the marker."""
    topics = [{"name": topic, "partitionIndexes": [0]}]
    session.until(
        lambda: session.call("OffsetFetch", 7, groupId=group, topics=topics, requireStable=True),
        lambda answer: answer["topics"][0]["partitions"][0]["errorCode"] != UNSTABLE_OFFSET_COMMIT,
    )


for _commit in (True, False):

    @scenario("TxnOffsetCommit", f"{'committed' if _commit else 'aborted'} with its transaction")
    def offsets(session, commit=_commit):
        client = client_for(session).init()
        topic, group = session.topic(), group_of(session)
        client.add_offsets(group)
        client.ask(asked_commit(client, group, topic))
        fetched(session, group, topic)
        client.end(commit=commit)
        await_stable(session, group, topic)
        fetched(session, group, topic)


@scenario("TxnOffsetCommit", "to a group that was not added")
def offsets_not_added(session):
    client = client_for(session).init()
    topic, group = session.topic(), group_of(session)
    client.ask(asked_commit(client, group, topic))
    fetched(session, group, topic)


@scenario("TxnOffsetCommit", "of others")
def offsets_of_others(session):
    client = client_for(session).init()
    topic, group = session.topic(), group_of(session)
    client.add_offsets(group)
    for changed in ({"transactional_id": "unheard-of"}, {"producer_id": 10**9}, {"epoch": 1}, {"epoch": -1}):
        client.ask(asked_commit(client, group, topic, names=client.changed(**changed)))


@scenario("TxnOffsetCommit", "for what does not exist")
def offsets_nowhere(session):
    client = client_for(session).init()
    topic, group = session.topic(), group_of(session)
    client.add_offsets(group)
    client.ask(asked_commit(client, group, "nowhere"))
    client.ask(asked_commit(client, group, topic, partition=9))
    client.ask(asked_commit(client, group, topic, metadata="m" * 5000))


@scenario("TxnOffsetCommit", "by members that are not there", first=3)
def offsets_of_strangers(session):
    client = client_for(session).init()
    topic, group = session.topic(), group_of(session)
    client.add_offsets(group)
    for member in (
        {"generationId": 3, "memberId": "nobody"}, {"generationId": -1, "memberId": "nobody"},
        {"generationId": 0, "memberId": "", "groupInstanceId": "i"},
    ):  # fmt: skip
        client.ask(asked_commit(client, group, topic, **member))


# WriteTxnMarkers


@scenario("WriteTxnMarkers", "to a transaction that is open")
def markers(session):
    client = client_for(session).init().init()
    topic = session.topic()
    client.add(topic).produce(topic, 1)

    def marker(epoch, commit, *topics, coordinator_epoch=0):
        named = [{"name": name, "partitionIndexes": [index]} for name, index in topics]
        return {"markers": [{"producerId": client.producer[0], "producerEpoch": client.producer[1] + epoch,
                             "transactionResult": commit, "coordinatorEpoch": coordinator_epoch, "topics": named}],
                }  # fmt: skip

    client.ask(marker(0, False, ("nowhere", 0)))
    client.seen(topic)
    client.ask(marker(-1, False, (topic, 0)))
    client.ask(marker(0, False, (topic, 0), (topic, 7), coordinator_epoch=100))
    client.seen(topic)
    client.ask(marker(0, True, (topic, 0), coordinator_epoch=100))
    client.ask(marker(0, True, (topic, 0), coordinator_epoch=3))
    client.ask({"markers": []})


# Lists and descriptions


def own(client):
    """Of all transactions those of the scenario's clients."""

    def keep(answer):
        mine = [one for one in answer["transactionStates"] if one["transactionalId"].startswith(client.id)]
        return client.ids.named({**answer, "transactionStates": mine})

    return keep


@scenario("ListTransactions", "by every filter")
def listed(session):
    idle, client = Client(session, "idle").init(), None
    topic = session.topic()
    client = Client(session).init()
    client.ids = idle.ids
    client.ids.named({"producerId": client.producer[0]})
    client.add(topic)
    asked = [{}, {"stateFilters": ["Ongoing"]}, {"stateFilters": ["Empty", "Dead"]}, {"stateFilters": ["ongoing", "X"]},
             {"producerIdFilters": [client.producer[0]]}, {"producerIdFilters": [10**9]}]  # fmt: skip
    if session.version >= 1:
        asked += [{"durationFilter": 0}, {"durationFilter": 10**9}]
    if session.version >= 2:
        asked += [{"transactionalIdPattern": pattern} for pattern in ("", f"{client.id}.+", client.id[:-1], "(", ".*")]
    for one in asked:
        session.ask({"stateFilters": [], "producerIdFilters": [], **one}, keep=own(client))


@scenario("DescribeTransactions", "from the beginning to the end")
def described(session):
    client = client_for(session)
    topics = session.topic("a", partitions=2), session.topic("b")

    def ask():
        session.ask({"transactionalIds": [client.id, "unheard-of"]}, keep=lambda one: client.ids.named(timeless(one)))

    ask()
    client.init()
    ask()
    client.add(topics[0], 0, 1).add(topics[1])
    ask()
    client.end()
    ask()
    session.ask({"transactionalIds": []})
    session.ask({"transactionalIds": [""]})


def timeless(answer):
    states = [
        {**one, "transactionStartTimeMs": one["transactionStartTimeMs"] > 0} for one in answer["transactionStates"]
    ]
    return {**answer, "transactionStates": states}


@scenario("FindCoordinator", "of transactional ids", first=1)
def found(session):
    client_for(session)
    names = {"coordinatorKeys": ["one", ""]} if session.version >= 4 else {"key": "one"}
    session.ask({"keyType": 1, **names})
