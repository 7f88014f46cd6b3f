"""Copies `events` to `copies` and `latest` in transactions by librdkafka, for ever and exactly once: `BOOTSTRAP GROUP`.

A copy says which message it is of, in which transaction, and how many copies that has. Before one of four transactions
another one copies the same and is aborted; its copies say that they are doomed, and it gives the group offsets at which
messages would be left out. `latest`, a compacted topic, has the offset of the newest copy of each key.

Any error ends it, and so does a transaction that takes too long: another instance goes on from what was committed.
"""

import json
import random
import signal
import sys
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

PATIENCE_S = 60
IN_ONE = 10
DOOMED_ONE_IN = 4
KEYS = 20


def main(bootstrap, group):
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": group, "linger.ms": 0, "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    signal.alarm(2 * PATIENCE_S)
    producer.init_transactions(PATIENCE_S)
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "group.instance.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed", "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    consumer.subscribe(["events"])
    while True:
        signal.alarm(2 * PATIENCE_S)
        messages = [one for one in consumer.consume(IN_ONE, timeout=0.1) if not one.error()]
        if messages:
            signal.alarm(PATIENCE_S)
            if random.randrange(DOOMED_ONE_IN) == 0:
                copy(producer, consumer, messages, is_doomed=True)
            copy(producer, consumer, messages, is_doomed=False)


def copy(producer, consumer, messages, *, is_doomed):
    producer.begin_transaction()
    transaction = uuid4().hex
    for one in messages:
        place = {"of": [one.partition(), one.offset()], "transaction": transaction, "copies": len(messages)}
        key, value = f"{one.partition()}-{one.offset() % KEYS}", json.dumps(place | {"doomed": is_doomed})
        for topic in ("copies", "latest"):
            producer.produce(topic, value, key=key, partition=one.partition())
    ends = consumer.position(consumer.assignment())
    if is_doomed:
        ends = [TopicPartition(one.topic, one.partition, one.offset + 1) for one in ends if one.offset >= 0]
    producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), PATIENCE_S)
    if is_doomed:
        producer.flush(PATIENCE_S)  # or what waits in the client would never be sent
        producer.abort_transaction(PATIENCE_S)
    else:
        producer.commit_transaction(PATIENCE_S)


main(*sys.argv[1:])
