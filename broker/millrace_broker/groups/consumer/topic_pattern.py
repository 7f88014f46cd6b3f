"""The regular expression of a subscription (KIP-848, "Subscribing with a regular expression").

A topic's whole name has to match.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from millrace_broker.patterns import Pattern, compiled

KEPT_PATTERNS = 128


def any_topic(name: str) -> bool:  # noqa: ARG001
    """Returns True: without an authorizer a member may describe every topic."""
    return True


def check_pattern(pattern: str) -> None:
    """Raises InvalidRegularExpressionError where the pattern can't be read or is too large."""
    _compiled(pattern)


def matching(pattern: str, topic_names: Iterable[str]) -> frozenset[str]:
    """Returns the topics whose whole name matches."""
    found = _compiled(pattern)
    return frozenset(name for name in topic_names if found.fullmatch(name))


@lru_cache(KEPT_PATTERNS)
def _compiled(pattern: str) -> Pattern:
    return compiled(pattern, "SubscribedTopicRegex")
