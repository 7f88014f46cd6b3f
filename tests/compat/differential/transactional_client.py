"""A producer of a transactional id, as scenarios use it: what it does itself is not compared, what it asks is."""

from differential.session import batch

from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer

NOT_YET = (14, 15, 16, 51)  # a coordinator that loads or is not there, a transaction that ends
LONG_MS = 60_000
NOBODY = (-1, -1)


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


def state(session, client):
    (one,) = session.call("DescribeTransactions", 0, transactionalIds=[client.id])["transactionStates"]
    return {"state": one["transactionState"], "epoch": one["producerEpoch"]}
