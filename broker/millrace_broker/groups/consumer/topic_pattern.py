"""The regular expression of a subscription (KIP-848, "Subscribing with a regular expression").

The syntax is that of RE2, whose port to Java is Kafka's engine. RE2 takes time in proportion to the text and to the
size of the expression, which is bounded here: so no client can stop a broker with one. A topic's whole name has to
match.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from millrace.errors import InvalidRegularExpressionError

KEPT_PATTERNS = 128
MAX_PATTERN_CHARACTERS = 1 << 12
MAX_INSTRUCTIONS = 2_000


def check_pattern(pattern: str) -> None:
    """Raises InvalidRegularExpressionError where the pattern can't be read or is too large."""
    _compile(pattern)


def matching(pattern: str, topic_names: Iterable[str]) -> frozenset[str]:
    """Returns the topics whose whole name matches."""
    compiled = _compile(pattern)
    return frozenset(name for name in topic_names if compiled.fullmatch(name))


@lru_cache(KEPT_PATTERNS)
def _compile(pattern: str) -> Any:
    # Only groups that subscribe with a pattern need the engine, and its memory.
    import re2  # noqa: PLC0415

    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex has {len(pattern)} characters, of {MAX_PATTERN_CHARACTERS} that are allowed"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex can't be read: `{pattern}`: {_text(error)}"
        ) from None
    if compiled.programsize > MAX_INSTRUCTIONS:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex has {compiled.programsize} instructions, of {MAX_INSTRUCTIONS} that are allowed"
        )
    return compiled


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
