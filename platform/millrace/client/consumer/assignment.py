"""Who consumes what, as every member of a group computes it for itself (docs/consumer-groups.md). Pure.

A member subscribes a topic with a number of streams; each stream is a consumer thread, named MEMBER-0, MEMBER-1 …

    range        for each topic: PT = its partitions, those of one broker side by side; CG = its consumer threads,
                 sorted; N = size(PT) / size(CG), one more for the first size(PT) mod size(CG) threads
    roundrobin   all partitions, by topic and number, dealt to the sorted threads in turn; a thread without the
                 topic is passed over

A partition counts to the broker of its first replica, which does not change as leaders do: so members that look at
different moments agree. Kafka's own old consumer sorts by number alone, so its members and these do not mix in a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Thread(NamedTuple):
    """One stream of a member."""

    member: str
    number: int

    def __str__(self) -> str:
        return f"{self.member}-{self.number}"


Subscription = Mapping[str, int]
Assignment = dict[Partition, Thread]
Brokers = Mapping[str, Sequence[int]]
Assign = Callable[[Mapping[str, Subscription], Brokers], Assignment]


def assign_range(subscriptions: Mapping[str, Subscription], brokers: Brokers) -> Assignment:
    """Returns the owner of each partition of the subscribed topics, each topic dealt by itself.

    Args:
        subscriptions: By member, its topics with the number of its streams.
        brokers: By topic, for each partition in order, the broker that it counts to.
    """
    assignment: Assignment = {}
    for topic, threads in sorted(_threads_by_topic(subscriptions).items()):
        homes = brokers.get(topic, ())
        partitions = sorted(range(len(homes)), key=lambda index: (homes[index], index))
        each, more = divmod(len(partitions), len(threads))
        for position, thread in enumerate(threads):
            begin = position * each + min(position, more)
            end = begin + each + (position < more)
            assignment.update({Partition(topic, index): thread for index in partitions[begin:end]})
    return assignment


def assign_roundrobin(subscriptions: Mapping[str, Subscription], brokers: Brokers) -> Assignment:
    """Returns what `assign_range` does, with all topics dealt together."""
    by_topic = {topic: frozenset(threads) for topic, threads in _threads_by_topic(subscriptions).items()}
    deal = cycle(sorted({thread for threads in by_topic.values() for thread in threads}))
    assignment: Assignment = {}
    for topic, able in sorted(by_topic.items()):
        for index in range(len(brokers.get(topic, ()))):
            assignment[Partition(topic, index)] = next(thread for thread in deal if thread in able)
    return assignment


STRATEGIES: Mapping[str, Assign] = {"range": assign_range, "roundrobin": assign_roundrobin}


def _threads_by_topic(subscriptions: Mapping[str, Subscription]) -> dict[str, list[Thread]]:
    threads: dict[str, list[Thread]] = {}
    for member in sorted(subscriptions):
        for topic, count in subscriptions[member].items():
            threads.setdefault(topic, []).extend(Thread(member, index) for index in range(count))
    return {topic: found for topic, found in threads.items() if found}
