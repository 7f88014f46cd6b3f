"""A topic that moves between two clusters with its writers and its group, again and again, by the commands."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from uuid import uuid4

from millrace import Producer
from millrace.client import Admin, Cluster
from millrace_pipelines.mirror.settings import Way
from millrace_support.mirrored_groups import read_as_group
from millrace_support.running_mirrors import Roles

PARTITIONS = 3


def both_ways(home: str, abroad: str, way: Way, *, keep_names: bool = False) -> tuple[Roles, Roles]:
    """Creates a topic at home; returns the mirror of it that goes abroad, and the one that goes back."""
    name = f"t{uuid4().hex[:8]}"
    with Cluster(home) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
    over = Roles(f"e{name}", home, abroad, name, way, keep_names)
    there = name if keep_names else f"{over.name}[.]{name}"
    return over, Roles(f"w{name}", abroad, home, there, keep_names=keep_names)


def names_of(over: Roles) -> tuple[str, str]:
    """Returns what the topic is called at home, and abroad."""
    return over.topics, over.topics if over.keep_names else f"{over.name}.{over.topics}"


class Travellers:
    """Writers and a group that move with the topic; what the group has read is compared with what was written."""

    def __init__(self, over: Roles, back: Roles, seed: int, *, protocol: str = "classic") -> None:
        self._ways = over, back
        self._names = names_of(over)
        self._random = random.Random(seed)  # noqa: S311
        self._protocol = protocol
        self._written: dict[int, list[int]] = {one: [] for one in range(PARTITIONS)}
        self._read: dict[int, list[int]] = {one: [] for one in range(PARTITIONS)}
        self._count = 0

    def travel(self, rounds: Iterable[object]) -> None:
        """Moves over and back so many times, writes and reads on each side under way, and at the end reads all."""
        legs: Sequence[tuple[Roles, str, str]] = [
            (self._ways[0], self._names[0], self._names[1]),
            (self._ways[1], self._names[1], self._names[0]),
        ]
        is_first = True
        for _ in rounds:
            for way, topic, there in legs:
                if not is_first:
                    told = way.command("switch-back")
                    assert told.exit_code == 0, told.exception
                is_first = False
                self._leg(way, topic, there)
        self._read_on(self._ways[0].source, self._names[0], self._left())
        assert self._read == self._written

    def _leg(self, way: Roles, topic: str, there: str) -> None:
        with way.running():
            writer = threading.Thread(target=self._write, args=(way.source, topic))
            writer.start()
            self._read_on(way.source, topic, self._random.randint(0, max(self._left(), 0)))
            writer.join()
            self._read_on(way.source, topic, self._random.randint(0, self._left()))
            told = way.command("switch-over")
            assert told.exit_code == 0, told.exception
        self._write(way.target, there)
        self._read_on(way.target, there, self._random.randint(0, self._left()))

    def _write(self, bootstrap: str, topic: str) -> None:
        """Writes transactions, every third of them aborted, to all partitions but one."""
        idle = self._random.randrange(PARTITIONS)
        with Producer(broker_list=bootstrap, producer_type="async", transactional_id=topic) as producer:
            producer.init_transactions()
            for transaction in range(4):
                self._write_one(producer, topic, idle, is_aborted=transaction % 3 == 1)

    def _write_one(self, producer: Producer, topic: str, idle: int, *, is_aborted: bool) -> None:
        producer.begin_transaction()
        sent = []
        for _ in range(self._random.randint(1, 8)):
            self._count += 1
            sent.append((self._random.choice([one for one in range(PARTITIONS) if one != idle]), self._count))
        for partition, number in sent:
            producer.send(topic, b"%d" % number, partition=partition)
        if is_aborted:
            producer.flush()
            producer.abort_transaction()
            return
        producer.commit_transaction()
        for partition, number in sent:
            self._written[partition].append(number)

    def _left(self) -> int:
        return sum(map(len, self._written.values())) - sum(map(len, self._read.values()))

    def _read_on(self, bootstrap: str, topic: str, count: int) -> None:
        group = self._names[0]
        for partition, number in read_as_group(bootstrap, group, topic, count, protocol=self._protocol):
            self._read[partition].append(number)
