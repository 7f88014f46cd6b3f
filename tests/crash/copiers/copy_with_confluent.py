"""Copies one topic to another by librdkafka, for ever and exactly once: `BOOTSTRAP NAME [COUNT]`.

It copies NAME-in to NAME-out, at most COUNT messages in a transaction.

Any error ends it, and so does a transaction that takes too long: another instance goes on from what was committed.
librdkafka does not bootstrap again here: where it does while its coordinator restarts, `send_offsets_to_transaction`
waits for a connection that it has given up, beside Apache Kafka too.
"""

import signal
import sys

from confluent_kafka import Consumer, Producer

PATIENCE_S = 60
IN_ONE = 10


def main(bootstrap, name, in_one=IN_ONE):
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    signal.alarm(2 * PATIENCE_S)
    producer.init_transactions(PATIENCE_S)
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": name, "group.instance.id": name, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed", "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    consumer.subscribe([f"{name}-in"])
    while True:
        signal.alarm(2 * PATIENCE_S)
        messages = [one for one in consumer.consume(int(in_one), timeout=0.1) if not one.error()]
        if not messages:
            continue
        signal.alarm(PATIENCE_S)
        producer.begin_transaction()
        for one in messages:
            producer.produce(f"{name}-out", one.value(), partition=one.partition())
        ends = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)


main(*sys.argv[1:])
