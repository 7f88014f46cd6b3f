"""Records in transactions, and how far a reader of committed records sees."""

from differential.scenario import scenario
from differential.session import batch
from differential.transactional_client import client_for, state

from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer

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
