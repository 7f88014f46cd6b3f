r"""What a member says of itself in /consumers/[group]/ids/[consumer], in Kafka's own form.

    {"version":1,"subscription":{"clicks":2},"pattern":"static","timestamp":"1400000000000"}
    {"version":1,"subscription":{"web\\..*":1},"pattern":"white_list","timestamp":…}        or black_list

The member's name is [group]_[consumer.id], or [group]_[host]-[milliseconds]-[8 hexadecimal digits].
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from millrace.errors import InvalidConfigError, InvalidRequestError, ZooKeeperError
from millrace.internal_topics import INTERNAL_TOPICS

MAX_STREAMS = 10_000


class Pattern(StrEnum):
    """Whether a subscription names topics, or filters them by a regular expression that includes or excludes."""

    STATIC = "static"
    WHITE_LIST = "white_list"
    BLACK_LIST = "black_list"


@dataclass(frozen=True, slots=True)
class Registration:
    """Topics, or the one regular expression of a filter, with the number of streams."""

    subscription: Mapping[str, int]
    pattern: Pattern = Pattern.STATIC

    def topics(self, existing: Iterable[str], *, exclude_internal: bool = True) -> dict[str, int]:
        """Returns the topics among the existing that it means, with the number of streams."""
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
    """Returns a filter's regular expression, read as Kafka does.

    A comma means "or"; blanks, and quotes around it, mean nothing.
    """
    expression = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        re.compile(expression)
    except re.error as error:
        raise InvalidConfigError(f"topic filter {text!r}: {error}") from None
    return expression


def check_counts(subscription: Mapping[str, int]) -> None:
    """Raises InvalidRequestError for a number of streams below 1 or above 10,000, or for no topic at all."""
    if not subscription or not all(1 <= count <= MAX_STREAMS for count in subscription.values()):
        raise InvalidRequestError(f"at least one topic, and 1 to {MAX_STREAMS} streams of each, are needed")


def member_name(group_id: str, consumer_id: str, now_ms: int) -> str:
    """Returns the name of a member, unique unless `consumer.id` gives it."""
    return f"{group_id}_{consumer_id or f'{socket.gethostname()}-{now_ms}-{secrets.token_hex(4)}'}"


def encode_registration(registration: Registration, now_ms: int) -> bytes:
    """Returns the data of the member's node."""
    fields = {
        "version": 1,
        "subscription": dict(registration.subscription),
        "pattern": registration.pattern.value,
        "timestamp": str(now_ms),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_registration(data: bytes) -> Registration:
    """Returns the registration of another member; raises ZooKeeperError for other data."""
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
