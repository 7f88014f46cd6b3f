"""Transactions: producers of transactional ids, partitions and offsets in them, their end, and what tools are told."""

from differential.scenario import scenario
from differential.session import batch

from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer

NOT_YET = (14, 15, 16, 51)  # a coordinator that loads or is not there, a transaction that ends
LONG_MS = 60_000
NOBODY = (-1, -1)
UNSTABLE_OFFSET_COMMIT = 88
FIRST_BATCHED = 4  # of AddPartitionsToTxn


class Ids:
    """Producer ids by the order in which a scenario meets them."""

    def __init__(self):
        self._known = {-1: -1}

    def named(self, value):
        if isinstance(value, dict):
            return {key: self._one(one) if key == "producerId" else self.named(one) for key, one in value.items()}
        return [self.named(one) for one in value] if isinstance(value, list) else value

    def _one(self, producer_id):
        return self._known.setdefault(producer_id, f"<producer {len(self._known)}>")


class Client:
    """A transactional id's producer; what it does itself is not compared."""

    def __init__(self, session, suffix="", *, timeout_ms=LONG_MS):
        self.session = session
        self.id = f"{session.api.lower()}-{session.name}{suffix and f'-{suffix}'}"
        self.ids = Ids()
        self.timeout_ms = timeout_ms
        session.until(
            lambda: session.call("FindCoordinator", 1, key=self.id, keyType=1), lambda one: one["errorCode"] == 0
        )
        session.until(
            lambda: session.call("DescribeTransactions", 0, transactionalIds=[self.id]),
            lambda one: one["transactionStates"][0]["errorCode"] not in NOT_YET,
        )

    def init(self, producer=NOBODY, version=4):
        producer_id, epoch = producer
        answer = self.session.until(
            lambda: self.session.call(
                "InitProducerId", version, transactionalId=self.id, transactionTimeoutMs=self.timeout_ms,
                producerId=producer_id, producerEpoch=epoch,
            ),
            lambda one: one["errorCode"] not in NOT_YET,
        )  # fmt: skip
        assert answer["errorCode"] == 0, answer
        self.ids.named(answer)
        self.producer = answer["producerId"], answer["producerEpoch"]
        return self

    @property
    def names(self):
        """The fields that name the client in most requests."""
        return {"transactionalId": self.id, "producerId": self.producer[0], "producerEpoch": self.producer[1]}

    def changed(self, *, transactional_id=None, producer_id=None, epoch=None):
        """The same of someone else."""
        given = {"transactionalId": transactional_id, "producerId": producer_id}
        moved = {} if epoch is None else {"producerEpoch": self.producer[1] + epoch}
        return {**self.names, **{key: one for key, one in given.items() if one is not None}, **moved}

    def add(self, topic, *partitions):
        answer = self.session.call(
            "AddPartitionsToTxn", 3, v3AndBelowTransactionalId=self.id, v3AndBelowProducerId=self.producer[0],
            v3AndBelowProducerEpoch=self.producer[1],
            v3AndBelowTopics=[{"name": topic, "partitions": list(partitions or [0])}],
        )  # fmt: skip
        self.check(answer["resultsByTopicV3AndBelow"][0]["resultsByPartition"][0]["partitionErrorCode"])
        return self

    def add_offsets(self, group):
        self.check(self.session.call("AddOffsetsToTxn", 3, groupId=group, **self.names)["errorCode"])
        return self

    @staticmethod
    def check(code):
        assert code == 0, code

    def batch(self, *numbers, sequence=0):
        return batch(*numbers, producer=BatchProducer(*self.producer, sequence), flags=TRANSACTIONAL_FLAG)

    def produce(self, topic, *numbers, sequence=0, partition=0):
        data = [{"name": topic, "partitionData": [
            {"index": partition, "records": self.batch(*numbers, sequence=sequence)}]}]  # fmt: skip
        answer = self.session.call("Produce", 9, transactionalId=self.id, acks=-1, timeoutMs=60_000, topicData=data)
        self.check(answer["responses"][0]["partitionResponses"][0]["errorCode"])
        return self

    def end(self, *, commit=True):
        self.check(self.session.call("EndTxn", 3, committed=commit, **self.names)["errorCode"])
        return self.settled()

    def settled(self):
        self.session.until(
            lambda: self.session.call("DescribeTransactions", 0, transactionalIds=[self.id]),
            lambda one: not one["transactionStates"][0]["transactionState"].startswith("Prepare"),
        )
        return self

    def ask(self, fields=None, /, **more):
        """Compared, with producer ids by their names."""
        return self.session.ask(fields or {}, keep=self.ids.named, **more)

    def seen(self, topic):
        """Compared: how far a reader of committed records may read."""
        names = {"topic": topic, "partitions": [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}]}
        self.session.ask(
            {"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "isolationLevel": 1, "topics": [names]},
            api="Fetch", version=11, keep=lambda answer: self.ids.named(without_records(answer)),
        )  # fmt: skip


def without_records(value):
    if isinstance(value, dict):
        return {key: without_records(one) for key, one in value.items() if key != "records"}
    return [without_records(one) for one in value] if isinstance(value, list) else value


def client_for(session, **options):
    return Client(session, **options)


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


def state(session, client):
    (one,) = session.call("DescribeTransactions", 0, transactionalIds=[client.id])["transactionStates"]
    return {"state": one["transactionState"], "epoch": one["producerEpoch"]}


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


# Produce


def asked_produce(client, topic, *numbers, sequence=0, names=None, partitions=(0,), data=None):
    named = client.session.by_name_or_id(topic, first_with_ids=13)
    content = data or client.batch(*numbers, sequence=sequence)
    partition_data = [{"index": index, "records": content} for index in partitions]
    return {"transactionalId": (names or client.names)["transactionalId"], "acks": -1, "timeoutMs": 60_000,
            "topicData": [{**named, "partitionData": partition_data}]}  # fmt: skip


@scenario("Produce", "in a transaction", first=3)
def produce_in_transaction(session):
    client = client_for(session).init()
    topic = session.topic(partitions=2)
    client.add(topic)
    client.ask(asked_produce(client, topic, 1, 2))
    client.ask(asked_produce(client, topic, 3, sequence=2))
    client.ask(asked_produce(client, topic, 3, sequence=2))
    client.seen(topic)
    client.ask(asked_produce(client, topic, 4, sequence=9))


@scenario("Produce", "to a partition that was not added", first=3)
def produce_not_added(session):
    client = client_for(session).init()
    topic = session.topic(partitions=2)
    client.add(topic)
    client.ask(asked_produce(client, topic, 1, partitions=(0, 1)))
    client.seen(topic)
    session.note(state(session, client))


@scenario("Produce", "without any partition added", first=3)
def produce_none_added(session):
    client = client_for(session).init()
    topic = session.topic()
    client.ask(asked_produce(client, topic, 1))
    client.seen(topic)
    session.note(state(session, client))


@scenario("Produce", "of others' transactions", first=3)
def produce_of_others(session):
    client = client_for(session).init()
    topic = session.topic()
    client.add(topic)
    client.ask(asked_produce(client, topic, 1, names=client.changed(transactional_id="unheard-of")))
    for producer in ((10**9, 0), (client.producer[0], client.producer[1] + 1)):
        data = batch(1, producer=BatchProducer(*producer, 0), flags=TRANSACTIONAL_FLAG)
        client.ask(asked_produce(client, topic, data=data))


@scenario("Produce", "after the end of the transaction", first=3)
def produce_late(session):
    client = client_for(session).init()
    topic = session.topic()
    client.add(topic).produce(topic, 1).end()
    client.ask(asked_produce(client, topic, 2, sequence=1))
    client.seen(topic)


@scenario("Produce", "of a fenced instance", first=3)
def produce_fenced(session):
    client = client_for(session).init()
    topic = session.topic()
    client.add(topic).produce(topic, 1)
    client_for(session).init()
    client.ask(asked_produce(client, topic, 2, sequence=1))
    client.seen(topic)


@scenario("Produce", "a batch of no transaction with a transactional id", first=3)
def produce_plain(session):
    client = client_for(session).init()
    topic = session.topic()
    client.ask(asked_produce(client, topic, data=batch(1)))
    client.ask(asked_produce(client, topic, data=batch(1, producer=BatchProducer(*client.producer, 0))))
    client.seen(topic)


@scenario("ListOffsets", "of committed records", first=2)
def committed_end(session):
    client = client_for(session).init()
    topic = session.topic(records=1)
    client.add(topic).produce(topic, 1)

    def ask():
        for level in (0, 1):
            for timestamp in (-1, 0):
                wanted = [{"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": timestamp}]
                session.ask(replicaId=-1, isolationLevel=level, topics=[{"name": topic, "partitions": wanted}],
                            timeoutMs=60_000)  # fmt: skip

    ask()
    client.end(commit=False)
    ask()
