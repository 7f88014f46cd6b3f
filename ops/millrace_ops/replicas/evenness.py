"""Counts of what each broker has, of each topic and in total, and the exchanges between brokers that even them out.

The replicas of a topic come first: brokers that have two more of them than others give some away. Then the total: where
a broker has two more than another in total, it gives away one of a topic of which it has one more. No exchange undoes
another, so to even out what is even changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import permutations


class Goal(IntEnum):
    """What an exchange evens out; the value is the least difference within the topic that it needs."""

    TOPIC = 2
    TOTAL = 1


class Counts:
    """How many replicas, or leaders, each broker has."""

    def __init__(self, brokers: Iterable[int], placed: Iterable[tuple[str, int]]) -> None:
        """Counts the pairs (topic, broker)."""
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
        """Counts one that goes from one broker to another."""
        self.remove(topic, giver)
        self.add(topic, taker)

    def of_topic(self, topic: str) -> dict[int, int]:
        """Returns the counts of a topic."""
        return self._of_topic.setdefault(topic, dict.fromkeys(self._brokers, 0))

    def exchanges(self, topic: str, goal: Goal) -> list[tuple[int, int]]:
        """Returns the pairs (giver, taker) that serve the goal, the most uneven first."""
        of_topic, total = self.of_topic(topic), self.total
        found = [
            (of_topic[taker] - of_topic[giver], total[taker] - total[giver], giver, taker)
            for giver, taker in permutations(self._brokers, 2)
            if of_topic[giver] - of_topic[taker] >= goal
            if goal is Goal.TOPIC or total[giver] - total[taker] >= 2
        ]
        return [(giver, taker) for _, _, giver, taker in sorted(found)]


def even_out(counts: Counts, topics: Sequence[str], try_exchange: Callable[[str, int, int], bool]) -> None:
    """Makes exchanges until none is left that helps.

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
