"""What clients write to the source cluster while a mirror and both clusters fail, by librdkafka.

| topic | what is written |
|---|---|
| `events` | numbered records with keys, headers and times of their own, by an idempotent producer, lz4 |
| `stamped` | numbered records to which the source's broker gives their times |
| `payments` | records in transactions, committed, aborted, or left open until the coordinator aborts them |
| `table` | a compacted topic: values and tombstones of a few keys, by both producers |
| `brief` | records that the source and the target delete after a while |

Each record has its number in the header `n`, which no other record of its topic has; what is never committed says so.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from itertools import count

from confluent_kafka import KafkaException, Producer

from millrace.client import Admin, Cluster
from millrace.errors import MillraceError
from millrace_support.waiting import awaited

TOPICS = {
    "events": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "payments": {},
    "table": {
        "cleanup.policy": "compact", "segment.ms": "3000", "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "120000",
    },
    "brief": {"segment.ms": "3000", "retention.ms": "90000"},
}  # fmt: skip
PARTITIONS = 2
PAUSE_S = 0.1
AT_ONCE = 4
KEYS = 12
TOMBSTONE_ONE_IN = 6
PATIENCE_S = 300
OPEN_MS = 8000
ENDINGS = ("commit", "commit", "commit", "abort", "leave open")
DOOMED = b"doomed"
PADDING = b" " * 80


def create_topics(bootstrap, replicas):
    """Creates the topics, once all brokers can be their replicas."""
    with Cluster(bootstrap) as cluster:
        for topic, config in TOPICS.items():

            def create(topic=topic, config=config):
                with contextlib.suppress(MillraceError):
                    Admin(cluster).create_topic(topic, PARTITIONS, replicas, config)
                return topic in cluster.metadata([topic]).topics or None

            awaited(create, f"{topic} is created")


class Writer(threading.Thread):
    """Writes until `finish`; a producer that gives up has a successor."""

    def __init__(self, bootstrap, name, seed):
        super().__init__(name=name, daemon=True)
        self.bootstrap, self.chance = bootstrap, random.Random(f"{name}{seed}")
        self.outcomes, self.stopping = Counter(), threading.Event()
        self.numbers = count()

    def new_producer(self, **settings):
        return Producer({
            "bootstrap.servers": self.bootstrap, "linger.ms": 5, "reconnect.backoff.max.ms": 500, "log_level": 0,
            "enable.idempotence": True, **settings,
        })  # fmt: skip

    def told(self, error, _):
        self.outcomes["acknowledged" if error is None else f"not acknowledged: {error.name()}"] += 1

    def record(self, topic, number, value, **more):
        partition = more.pop("partition", number % PARTITIONS)
        headers = [("n", b"%d" % number), ("by", self.name.encode())]
        return {"topic": topic, "value": value, "partition": partition, "headers": headers, **more}

    def row(self, number):
        key = self.chance.randrange(KEYS)
        is_gone = self.chance.randrange(TOMBSTONE_ONE_IN) == 0
        value = None if is_gone else b"%d" % number + PADDING
        return self.record("table", number, value, key=b"%d" % key, partition=key % PARTITIONS)

    def finish(self):
        """Returns once all that was written is known to be there or not."""
        self.stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), self.outcomes


class Ordinary(Writer):
    """Writes to all topics but `payments`."""

    def run(self):
        producer = self.new_producer(**{"compression.type": "lz4"})
        while not self.stopping.wait(PAUSE_S):
            try:
                for number in (next(self.numbers) for _ in range(AT_ONCE)):
                    for one in self.records(number):
                        producer.produce(**one, on_delivery=self.told)
                producer.poll(0)
            except BufferError:
                producer.poll(1)
            except KafkaException:
                self.outcomes["producers that gave up"] += 1
                producer = self.new_producer(**{"compression.type": "lz4"})
        assert producer.flush(PATIENCE_S) == 0, self.outcomes

    def records(self, number):
        value = b"%d" % number + PADDING
        now_ms = time.time_ns() // 10**6
        key = b"%d" % (number % KEYS)
        yield self.record("events", number, value, key=key, timestamp=now_ms - self.chance.randrange(10**6))
        yield self.record("stamped", number, value)
        yield self.record("brief", number, value, key=key)
        yield self.row(number)


class Transactional(Writer):
    """Writes to `payments` and `table` in transactions."""

    def run(self):
        producer = None
        while not self.stopping.wait(PAUSE_S):
            ending = self.chance.choice(ENDINGS)
            try:
                if producer is None:
                    producer = self.new_producer(**{
                        "transactional.id": f"{self.name}-{next(self.numbers)}", "transaction.timeout.ms": OPEN_MS,
                    })  # fmt: skip
                    producer.init_transactions(PATIENCE_S)
                self.transact(producer, ending)
            except (KafkaException, BufferError):
                self.outcomes["transactions that failed"] += 1
                producer = None
            else:
                self.outcomes[ending] += 1
                if ending == "leave open":
                    producer = None  # its client ends without a word to the coordinator

    def transact(self, producer, ending):
        producer.begin_transaction()
        for number in (next(self.numbers) for _ in range(self.chance.randrange(1, 20))):
            value = b"%d" % number + PADDING if ending == "commit" else DOOMED + b" %d" % number
            producer.produce(**self.record("payments", number, value), on_delivery=self.told)
            if ending == "commit":
                producer.produce(**self.row(number), on_delivery=self.told)
        producer.flush(PATIENCE_S)
        if ending == "commit":
            producer.commit_transaction(PATIENCE_S)
        elif ending == "abort":
            producer.abort_transaction(PATIENCE_S)
