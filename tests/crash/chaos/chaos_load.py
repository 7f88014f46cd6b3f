"""What clients do while brokers fail: they send, copy in transactions, and read, and remember what they were told.

| topic | policy | what is written |
|---|---|---|
| `events` | delete | numbers, each once, by an idempotent producer with acks=all |
| `table` | compact | the number of the last write of each of a few keys, or a tombstone, by the same producer |
| `copies` | delete | the copies of `events`, in transactions of which some are aborted (`copiers/copy_or_abort.py`) |
| `latest` | compact | the place of the newest copy of each of a few keys, in the same transactions |
"""

import contextlib
import sys
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from copying import Copier

from millrace.client import Admin, Cluster
from millrace_support.waiting import awaited

COPIER = Path(__file__).parents[1] / "copiers" / "copy_or_abort.py"
TOPICS = {"events": {}, "copies": {}, "table": {"cleanup.policy": "compact"}, "latest": {"cleanup.policy": "compact"}}
PARTITIONS = 2
GROUP = "copier"
KEYS, TOMBSTONE_ONE_IN = 15, 7
AT_ONCE, PAUSE_S = 5, 0.05
AT_MOST_AHEAD = 1000
PATIENCE_S = 300
PADDING = b" " * 60
UNIMPORTANT = (
    KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._PARTITION_EOF,
)  # fmt: skip


class Sent(NamedTuple):
    """A message, and the offset that its acknowledgement named; None where none came."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    offset: int | None


class Sender(threading.Thread):
    """Sends to `events` and `table`, never far ahead of the copies; `sent` has everything in the order of the keys."""

    def __init__(self, bootstrap, reader):
        super().__init__(name="sender", daemon=True)
        self.bootstrap, self.reader = bootstrap, reader
        self.sent, self.outcomes, self.stopping = [], Counter(), threading.Event()
        self.producer = self.new_producer()

    def new_producer(self):
        return Producer({
            "bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0,
            "reconnect.backoff.max.ms": 500, "delivery.timeout.ms": 1000 * PATIENCE_S,
        })  # fmt: skip

    def run(self):
        numbers = iter(range(10**9))
        while not self.stopping.wait(PAUSE_S):
            self.producer.poll(0)
            if self.outcomes["events sent"] - self.reader.counts["copies"] < AT_MOST_AHEAD:
                for _ in range(AT_ONCE):
                    self.send(next(numbers))

    def send(self, number):
        key = number % KEYS
        self.outcomes["events sent"] += 1
        self.produce("events", number % PARTITIONS, None, b"%d" % number + PADDING)
        value = None if number % TOMBSTONE_ONE_IN == 0 else b"%d" % number + PADDING
        self.produce("table", key % PARTITIONS, b"%d" % key, value)

    def produce(self, topic, partition, key, value):
        at = len(self.sent)
        self.sent.append(Sent(topic, partition, key, value, None))

        def told(error, message):
            self.outcomes["acknowledged" if error is None else f"not acknowledged: {error.name()}"] += 1
            if error is None:
                self.sent[at] = self.sent[at]._replace(offset=message.offset())

        try:
            self.producer.produce(topic, value, key=key, partition=partition, on_delivery=told)
        except KafkaException:  # an idempotent producer that has met a fatal error: its successor goes on
            self.outcomes["producers that gave up"] += 1
            self.producer = self.new_producer()

    def stop(self):
        """Stops the thread, and waits until the outcome of all that was sent is known."""
        self.stopping.set()
        self.join()
        assert self.producer.flush(PATIENCE_S) == 0, self.outcomes


class Reader(threading.Thread):
    """Reads committed records on the way; `found` has (offset, key, value) by topic and partition, as they came."""

    def __init__(self, bootstrap):
        super().__init__(name="reader", daemon=True)
        self.consumer = consumer_of_all(bootstrap, ("events", "copies"))
        self.found, self.counts, self.errors = defaultdict(list), Counter(), Counter()
        self.progress, self.stopping = threading.Condition(), threading.Event()

    def run(self):
        while not self.stopping.is_set():
            messages = self.consumer.consume(1000, timeout=0.1)
            with self.progress:
                for one in messages:
                    if one.error() is None:
                        self.found[one.topic(), one.partition()].append((one.offset(), one.key(), one.value()))
                        self.counts[one.topic()] += 1
                    elif one.error().code() not in UNIMPORTANT:
                        self.errors[str(one.error())] += 1
                self.progress.notify_all()

    def await_more(self, events, copies, describe):
        """Waits until so many more events and copies are read than were when this is called."""
        with self.progress:
            wanted = {"events": self.counts["events"] + events, "copies": self.counts["copies"] + copies}
            came = self.progress.wait_for(
                lambda: all(self.counts[topic] >= count for topic, count in wanted.items()), PATIENCE_S
            )
        assert came, f"wanted {wanted}, came {self.counts}, {self.errors}\n{describe()}"

    def stop(self):
        """Stops the thread. Its consumer is left open, as `close` may never return after many changes of leaders."""
        self.stopping.set()
        self.join()


def consumer_of_all(bootstrap, topics):
    """Returns a consumer of committed records that is at the beginning of all partitions."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
        "enable.auto.commit": False, "auto.offset.reset": "error", "check.crcs": True, "enable.partition.eof": True,
        "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    places = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
    return consumer


class Evidence(NamedTuple):
    """What `content_findings` judges, for which see there."""

    sent: list[Sent]
    on_the_way: dict
    final: dict
    committed: dict[int, int]


def create_topics(bootstrap, replicas):
    with Cluster(bootstrap) as cluster:
        for topic, config in TOPICS.items():
            Admin(cluster).create_topic(topic, PARTITIONS, replicas, config)


class Load:
    """All clients of a run; `finish` returns once everything is acknowledged and copied."""

    def __init__(self, bootstrap, folder):
        self.bootstrap = bootstrap
        self.reader = Reader(bootstrap)
        self.sender = Sender(bootstrap, self.reader)
        command = [sys.executable, str(COPIER), bootstrap, GROUP]
        self.copier = Copier(GROUP, command, folder / "copier.log")

    def start(self):
        for each in (self.reader, self.sender, self.copier):
            each.start()

    def finish(self):
        """Stops the sender, waits until everything is copied, and ends all."""
        self.sender.stop()
        awaited(self.is_copied, "all events are copied", lambda: f"{self.committed()} of {self.ends()}")
        self.close()

    def close(self):
        """Ends all threads and the copier's process, whatever they have done."""
        self.sender.stopping.set()
        self.copier.stop()
        self.reader.stop()

    def is_copied(self):
        with contextlib.suppress(KafkaException):
            return self.committed() == self.ends() or None
        return None

    def committed(self):
        """Returns the group's offset in each partition of `events`."""
        consumer = self.asking(GROUP)
        places = [TopicPartition("events", partition) for partition in range(PARTITIONS)]
        return {one.partition: one.offset for one in consumer.committed(places, PATIENCE_S)}

    def ends(self):
        """Returns the end of each partition of `events`."""
        consumer = self.asking("nobody")
        places = [TopicPartition("events", partition) for partition in range(PARTITIONS)]
        return {one.partition: consumer.get_watermark_offsets(one, PATIENCE_S)[1] for one in places}

    def asking(self, group):
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})

    def evidence(self):
        """Returns what is to be judged, once nobody writes any more."""
        return Evidence(self.sender.sent, self.reader.found, self.read_all(), self.committed())

    def read_all(self):
        """Returns (offset, key, value) of all committed records, by topic and partition, when nobody writes."""
        consumer, found, errors, ended = consumer_of_all(self.bootstrap, TOPICS), defaultdict(list), Counter(), set()

        def look():
            for one in consumer.consume(1000, timeout=0.1):
                if one.error() is None:
                    found[one.topic(), one.partition()].append((one.offset(), one.key(), one.value()))
                elif one.error().code() == KafkaError._PARTITION_EOF:
                    ended.add((one.topic(), one.partition()))
                else:
                    errors[str(one.error())] += 1
            return len(ended) == len(TOPICS) * PARTITIONS or None

        awaited(look, "all is read", lambda: f"{ended}, {errors}")
        consumer.close()
        return found
