"""Groups that the brokers coordinate, beside a history: members of librdkafka join, commit and leave all the time.

One group uses the classic protocol, the other one the consumer group protocol (KIP-848). In the end other members come,
and stay: the group has settled once they own each partition once, and each owner's commit is accepted.
"""

import contextlib
import random
import threading

from confluent_kafka import Consumer, KafkaException
from with_confluent import UNIMPORTANT

from millrace_support.waiting import awaited

PROTOCOLS = {
    "classic": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
    "consumer": {"group.protocol": "consumer"},
}
COMERS, STAYERS = 3, 2
MOST_POLLS, POLL_S, ANSWER_S = 30, 0.1, 5


class CoordinatedGroups:
    """The groups, whose members come and go from `start` until the end of the block."""

    def __init__(self, bootstrap, topic, partitions):
        self.groups = [CoordinatedGroup(bootstrap, topic, partitions, protocol) for protocol in PROTOCOLS]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        for group in self.groups:
            group.start()

    def stop(self):
        for group in self.groups:
            group.stopping.set()
        for thread in (thread for group in self.groups for thread in group.threads):
            thread.join()

    def settle(self):
        """Ends the members that come and go, and waits until others share the partitions."""
        self.stop()
        for group in self.groups:
            group.settle()

    def outcomes(self):
        """Returns how many members have come, by the protocol of their group."""
        return {f"{group.protocol} members": group.comings for group in self.groups}


class CoordinatedGroup:
    """One group."""

    def __init__(self, bootstrap, topic, partitions, protocol):
        self.topic, self.partitions, self.protocol = topic, list(range(partitions)), protocol
        self.config = {
            "bootstrap.servers": bootstrap, "group.id": f"{protocol}-comers", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 500, **PROTOCOLS[protocol],
        }  # fmt: skip
        self.stopping, self.comings = threading.Event(), 0
        self.threads = [threading.Thread(target=self.come_and_go, daemon=True) for _ in range(COMERS)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def come_and_go(self):
        """Is one member after another, each for some polls."""
        while not self.stopping.is_set():
            self.comings += 1
            with self.member() as consumer:
                for _ in range(random.randint(1, MOST_POLLS)):
                    if self.stopping.is_set():
                        break
                    read_and_commit(consumer)

    @contextlib.contextmanager
    def member(self):
        consumer = Consumer(self.config)
        consumer.subscribe([self.topic])
        try:
            yield consumer
        finally:
            consumer.close()

    def settle(self):
        with contextlib.ExitStack() as stack:
            stayers = [stack.enter_context(self.member()) for _ in range(STAYERS)]
            awaited(lambda: self.is_settled(stayers) or None, f"the members of {self.config['group.id']} share all")

    def is_settled(self, stayers):
        are_accepted = [read_and_commit(consumer) for consumer in stayers]
        owned = sorted(one.partition for consumer in stayers for one in consumer.assignment())
        return all(are_accepted) and owned == self.partitions


def read_and_commit(consumer):
    """Polls and commits its positions; returns whether it owns partitions and all its commits were accepted."""
    message = consumer.poll(POLL_S)
    if message is not None and message.error() is not None and message.error().code() in UNIMPORTANT:
        return False
    try:
        ends = ends_of(consumer)
        return bool(ends) and not any(one.error for one in consumer.commit(offsets=ends, asynchronous=False))
    except KafkaException:  # the group rebalances, or its coordinator is away
        return False


def ends_of(consumer):
    """Returns where it will read on: a member that was handed nothing yet has no positions but the group's offsets."""
    owned = consumer.assignment()
    read = [one for one in consumer.position(owned) if one.offset >= 0]
    return read or [one for one in consumer.committed(owned, timeout=ANSWER_S) if one.offset >= 0]
