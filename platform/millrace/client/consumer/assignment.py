r"""Who consumes what, as every member of a group computes it for itself (docs/consumer-groups.md).

A member subscribes a topic with a number of streams; each stream is a consumer thread, named MEMBER-0, MEMBER-1 …

    range        for each topic: PT = its partitions, those of one broker side by side; CG = its consumer threads,
                 sorted; N = size(PT) / size(CG), one more for the first size(PT) mod size(CG) threads
    roundrobin   all partitions, by topic and number, dealt to the sorted threads in turn; a thread without the
                 topic is passed over

A partition counts to the broker of its first replica, which does not change as leaders do: so members that look at
different moments agree. Kafka's own old consumer sorts by number alone, so its members and these do not mix in a group.

What a member says of itself is in /consumers/[group]/ids/[consumer], in Kafka's own form:

    {"version":1,"subscription":{"clicks":2},"pattern":"static","timestamp":"1400000000000"}
    {"version":1,"subscription":{"web\\..*":1},"pattern":"white_list","timestamp":…}        or black_list

The member's name is [group]_[consumer.id], or [group]_[host]-[milliseconds]-[8 hexadecimal digits].
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from typing import NamedTuple

from millrace.errors import InvalidConfigError, InvalidRequestError, ZooKeeperError
from millrace.internal_topics import INTERNAL_TOPICS


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Thread(NamedTuple):
    """One stream of a member: the owner to which partitions are assigned; as text MEMBER-NUMBER."""

    member: str
    number: int

    def __str__(self) -> str:
        return f"{self.member}-{self.number}"


Subscription = Mapping[str, int]
Assignment = dict[Partition, Thread]
Brokers = Mapping[str, Sequence[int]]
Assign = Callable[[Mapping[str, Subscription], Brokers], Assignment]


def assign_range(subscriptions: Mapping[str, Subscription], brokers: Brokers) -> Assignment:
    """Returns the stream that owns each partition; each topic's partitions are divided among its streams as ranges.

    Args:
        subscriptions: By member, its topics with the number of its streams of each.
        brokers: By topic, a broker for each partition in order; a range takes the partitions broker by broker.
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
    """Returns the stream that owns each partition; the arguments are those of `assign_range`.

    Partitions of all topics are dealt to the streams one by one.
    """
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


MAX_STREAMS = 10_000


class Pattern(StrEnum):
    """How a subscription names topics: by their names, or by a regular expression that includes or excludes names."""

    STATIC = "static"
    WHITE_LIST = "white_list"
    BLACK_LIST = "black_list"


@dataclass(frozen=True, slots=True)
class Registration:
    """What a member subscribes to: topics, or the one regular expression of a filter, with the number of streams."""

    subscription: Mapping[str, int]
    pattern: Pattern = Pattern.STATIC

    def topics(self, existing: Iterable[str], *, exclude_internal: bool = True) -> dict[str, int]:
        """Returns the existing topics that this registration subscribes to, with the number of streams of each."""
        if self.pattern is Pattern.STATIC:
            return {topic: self.subscription[topic] for topic in existing if topic in self.subscription}
        (text, count), wants = next(iter(self.subscription.items())), self.pattern is Pattern.WHITE_LIST
        expression = re.compile(text)
        hidden = INTERNAL_TOPICS if exclude_internal else frozenset[str]()
        return {
            topic: count
            for topic in existing
            if topic not in hidden and (expression.fullmatch(topic) is not None) is wants
        }


def filter_expression(text: str) -> str:
    """Returns the regular expression in a topic filter; raises InvalidConfigError where it can't be compiled.

    As in Kafka a comma means "or", and blanks and surrounding quotes are ignored.
    """
    expression = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        re.compile(expression)
    except re.error as error:
        raise InvalidConfigError(f"topic filter {text!r}: {error}") from None
    return expression


def check_counts(subscription: Mapping[str, int]) -> None:
    """Raises InvalidRequestError unless there is a topic, and each topic's number of streams is from 1 to 10,000."""
    if not subscription or not all(1 <= count <= MAX_STREAMS for count in subscription.values()):
        raise InvalidRequestError(f"at least one topic, and 1 to {MAX_STREAMS} streams of each, are needed")


def member_name(group_id: str, consumer_id: str, now_ms: int) -> str:
    """Returns a group member's name: the group id, and the consumer id or, if that is empty, host, time and a nonce."""
    return f"{group_id}_{consumer_id or f'{socket.gethostname()}-{now_ms}-{secrets.token_hex(4)}'}"


def encode_registration(registration: Registration, now_ms: int) -> bytes:
    """Returns a registration as the JSON that a member writes to its node in ZooKeeper."""
    fields = {
        "version": 1,
        "subscription": dict(registration.subscription),
        "pattern": registration.pattern.value,
        "timestamp": str(now_ms),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_registration(data: bytes) -> Registration:
    """Returns the registration in the JSON of a member's node; raises ZooKeeperError for other data."""
    try:
        fields = json.loads(data)
        subscription = {str(name): int(count) for name, count in fields["subscription"].items()}
        found = Registration(subscription, Pattern(fields["pattern"]))
        check_counts(subscription)
        if found.pattern is not Pattern.STATIC:
            re.compile(next(iter(subscription)))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, re.error, InvalidRequestError) as error:
        raise ZooKeeperError(f"not a consumer's registration: {data[:200]!r}: {error}") from error
    return found
