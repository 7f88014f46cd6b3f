"""Which brokers should have the replicas of partitions: a pure function of where they are.

1. Every replica stays that may stay. Surplus ones go, those first whose rack the partition has twice.
2. Missing ones come to the brokers with the fewest, in racks first that the partition does not have yet.
3. A partition is spread over as many racks as it can be. Where a broker has no rack, racks are ignored.
4. Replicas are evened out over the brokers, and then the first replicas, which lead (`even_out`).

Without `level` the function ends after the second step: only what must move does. The second step finds one broker
after the other, and the fourth makes the fewest moves from there, which may be a few more than the fewest in all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from itertools import permutations
from typing import TypeAlias

from millrace.client.metadata import Partition
from millrace.errors import InvalidReplicaAssignmentError


class Goal(IntEnum):
    """The numbers that a move evens out: those of a topic, or of all topics.

    The value is by how many replicas of the topic the giver must exceed the taker for the move to be made.
    """

    TOPIC = 2
    TOTAL = 1


class Counts:
    """The number of replicas, or of leaders, that each broker has, by topic and in total."""

    def __init__(self, brokers: Iterable[int], placed: Iterable[tuple[str, int]]) -> None:
        """Counts `placed`, (topic, broker) pairs, one for each replica, or each leader, of a topic's partitions."""
        self._brokers = sorted(brokers)
        self.total = dict.fromkeys(self._brokers, 0)
        self._of_topic: dict[str, dict[int, int]] = {}
        for topic, broker in placed:
            self.add(topic, broker)

    def add(self, topic: str, broker: int) -> None:
        """Counts another replica of the topic on the broker."""
        self.of_topic(topic)[broker] += 1
        self.total[broker] += 1

    def remove(self, topic: str, broker: int) -> None:
        """Counts one replica less of the topic on the broker."""
        self.of_topic(topic)[broker] -= 1
        self.total[broker] -= 1

    def exchange(self, topic: str, giver: int, taker: int) -> None:
        """Counts one replica, or leader, of the topic that goes from one broker to another."""
        self.remove(topic, giver)
        self.add(topic, taker)

    def of_topic(self, topic: str) -> dict[int, int]:
        """Returns the number of the topic's replicas, or leaders, on each broker."""
        return self._of_topic.setdefault(topic, dict.fromkeys(self._brokers, 0))

    def exchanges(self, topic: str, goal: Goal) -> list[tuple[int, int]]:
        """Returns the pairs (giver, taker) for which moving one of the topic serves the goal, the most uneven first."""
        of_topic, total = self.of_topic(topic), self.total
        found = [
            (of_topic[taker] - of_topic[giver], total[taker] - total[giver], giver, taker)
            for giver, taker in permutations(self._brokers, 2)
            if of_topic[giver] - of_topic[taker] >= goal
            if goal is Goal.TOPIC or total[giver] - total[taker] >= 2
        ]
        return [(giver, taker) for _, _, giver, taker in sorted(found)]


def even_out(counts: Counts, topics: Sequence[str], try_exchange: Callable[[str, int, int], bool]) -> None:
    """Moves replicas or leaders from broker to broker until no move makes their numbers more even.

    The replicas of a topic come first: brokers that have two more of them than others give some away. Then the total:
    where a broker has two more than another in total, it gives away one of a topic of which it has one more. No
    exchange undoes another, so to even out what is even changes nothing.

    Args:
        counts: The counts, which are kept up to date.
        topics: The topics, in the order in which they are looked at.
        try_exchange: Moves one of (topic) from (giver) to (taker), and returns whether one could be moved.
    """

    def exchange_one(topic: str, goal: Goal) -> bool:
        for giver, taker in counts.exchanges(topic, goal):
            if try_exchange(topic, giver, taker):
                counts.exchange(topic, giver, taker)
                return True
        return False

    def exchange_all(goal: Goal) -> bool:
        has_changed = False
        for topic in topics:
            while exchange_one(topic, goal):
                has_changed = True
        return has_changed

    while exchange_all(Goal.TOPIC) or exchange_all(Goal.TOTAL):
        pass


Racks: TypeAlias = Mapping[int, str | None]
Assignment: TypeAlias = Mapping[Partition, Sequence[int]]
Placed: TypeAlias = dict[Partition, tuple[int, ...]]


def too_many_replicas(current: Assignment, brokers: Collection[int], receivers: Collection[int]) -> dict[str, int]:
    """Returns the topics that can't keep as many replicas as they have, with how many they can have.

    `brokers` may keep the replicas that they have, and `receivers`, which are among them, may get others.
    """
    most: dict[str, int] = {}
    too_many: set[str] = set()
    for (topic, _), replicas in current.items():
        able = len({*receivers, *(one for one in replicas if one in brokers)})
        most[topic] = min(able, most.get(topic, able))
        if able < len(replicas):
            too_many.add(topic)
    return {topic: most[topic] for topic in sorted(too_many)}


def place(
    current: Assignment,
    brokers: Racks,
    *,
    replication_factor: int | None = None,
    receivers: Collection[int] | None = None,
    level: bool = True,
) -> Placed:
    """Returns the replicas that each partition should have, the preferred leader first.

    Args:
        current: The replicas that each partition has.
        brokers: The rack of each broker that may have replicas.
        replication_factor: How many replicas each partition gets; by default as many as it has.
        receivers: The brokers among them that may get replicas in place of those that must move; by default all.
        level: Whether replicas and leaders are evened out over the brokers, too.

    Raises:
        InvalidReplicaAssignmentError: There are fewer brokers than a partition is to have replicas.
    """
    placement = _Placement(current, brokers)
    for partition, replicas in sorted(current.items()):
        count = replication_factor or len(replicas)
        if count > len(brokers):
            named = ", ".join(map(str, sorted(brokers))) or "none"
            raise InvalidReplicaAssignmentError(
                f"topic {partition[0]}: its {count} replica(s) need as many brokers, and there are only these: {named}"
            )
        placement.fit(partition, count, brokers if receivers is None else receivers)
    if level:
        placement.spread_over_racks()
        placement.even_out()
    return placement.result()


def with_leaders_spread(placed: Assignment, brokers: Racks, partitions: Collection[Partition]) -> Placed:
    """Returns a placement in which other orders of the replicas of some partitions even out the first replicas."""
    placement = _Placement(placed, brokers)
    placement.even_out_leaders(partitions)
    return placement.result()


class _Placement:
    """The replicas of all partitions while they are being placed."""

    def __init__(self, current: Assignment, brokers: Racks) -> None:
        self._racks = brokers if all(brokers.values()) else dict.fromkeys(brokers, "")
        self._brokers = sorted(brokers)
        self.replicas = {partition: list(replicas) for partition, replicas in current.items()}
        self._topics = sorted({topic for topic, _ in current})
        self._of_topic = {topic: sorted(one for one in current if one[0] == topic) for topic in self._topics}
        staying = ((topic, one) for (topic, _), replicas in current.items() for one in replicas if one in brokers)
        self._counts = Counts(brokers, staying)

    def result(self) -> Placed:
        """Returns the replicas of each partition."""
        return {partition: tuple(replicas) for partition, replicas in self.replicas.items()}

    def fit(self, partition: Partition, count: int, receivers: Collection[int]) -> None:
        """Gives the partition `count` replicas on allowed brokers; a new one takes the place of a removed one."""
        replicas = self.replicas[partition]
        while len(replicas) > count:
            surplus = self._least_useful(replicas)
            replicas.remove(surplus)
            if surplus in self._racks:
                self._counts.remove(partition[0], surplus)
        for place, broker in enumerate(replicas):
            if broker not in self._racks:
                replicas[place] = self._newcomer(partition, receivers)
        while len(replicas) < count:
            replicas.append(self._newcomer(partition, receivers))

    def spread_over_racks(self) -> None:
        """Moves replicas that share a rack with another one of their partition to racks that it does not have."""
        racks = set(self._racks.values())
        for partition, replicas in self.replicas.items():
            while (unused := racks - self._racks_of(replicas)) and len(self._racks_of(replicas)) < len(replicas):
                doubled = self._least_useful(replicas)
                taker = min((one for one in self._brokers if self._racks[one] in unused), key=self._load)
                replicas[replicas.index(doubled)] = taker
                self._counts.exchange(partition[0], doubled, taker)

    def even_out(self) -> None:
        """Moves replicas from brokers that have many to those that have few, and then evens out the first replicas."""
        even_out(self._counts, self._topics, self._try_move)
        self.even_out_leaders(self.replicas.keys())

    def even_out_leaders(self, partitions: Collection[Partition]) -> None:
        """Evens out the first replicas, by other orders of the replicas of some partitions."""
        firsts = ((topic, replicas[0]) for (topic, _), replicas in self.replicas.items())
        leaders = Counts(self._brokers, ((topic, one) for topic, one in firsts if one in self._racks))
        even_out(leaders, self._topics, partial(self._try_lead, partitions))

    def _try_move(self, topic: str, giver: int, taker: int) -> bool:
        for partition in self._of_topic[topic]:
            replicas = self.replicas[partition]
            if giver in replicas and taker not in replicas:
                moved = [taker if one == giver else one for one in replicas]
                if len(self._racks_of(moved)) >= len(self._racks_of(replicas)):
                    self.replicas[partition] = moved
                    return True
        return False

    def _try_lead(self, partitions: Collection[Partition], topic: str, giver: int, taker: int) -> bool:
        for partition in self._of_topic[topic]:
            replicas = self.replicas[partition]
            if replicas[0] == giver and taker in replicas and partition in partitions:
                self.replicas[partition] = [taker, *(one for one in replicas if one != taker)]
                return True
        return False

    def _newcomer(self, partition: Partition, receivers: Collection[int]) -> int:
        replicas = self.replicas[partition]
        used, of_topic = self._racks_of(replicas), self._counts.of_topic(partition[0])
        able = [one for one in self._brokers if one in receivers and one not in replicas]
        if not able:
            raise InvalidReplicaAssignmentError(
                f"{partition[0]}-{partition[1]}: every broker that is alive has a replica already"
            )
        chosen = min(able, key=lambda one: (self._racks[one] in used, of_topic[one], self._load(one)))
        self._counts.add(partition[0], chosen)
        return chosen

    def _least_useful(self, replicas: Sequence[int]) -> int:
        """Returns the replica to remove: one on no allowed broker, else one in a doubled rack, else the last one."""
        racks = [self._racks.get(one) for one in replicas]
        places = range(len(replicas))
        return replicas[max(places, key=lambda place: (racks[place] is None, racks.count(racks[place]) > 1, place))]

    def _racks_of(self, replicas: Sequence[int]) -> set[str | None]:
        return {self._racks[one] for one in replicas if one in self._racks}

    def _load(self, broker: int) -> tuple[int, int]:
        return self._counts.total[broker], broker
