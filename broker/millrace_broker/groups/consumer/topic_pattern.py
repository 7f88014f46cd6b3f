"""The regular expression of a subscription (KIP-848, "Subscribing with a regular expression").

The syntax is RE2's, and the engine is RE2 itself: Kafka uses its port to Java. It takes time in proportion to
what it reads whatever the expression, and in proportion to the expression's size, which is bounded: so no client
can stop a broker with one. A topic matches as a whole.
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
    """InvalidRegularExpressionError where it can't be read."""
    _compile(pattern)


def matching(pattern: str, topic_names: Iterable[str]) -> frozenset[str]:
    """The topics whose whole name matches."""
    compiled = _compile(pattern)
    return frozenset(name for name in topic_names if compiled.fullmatch(name))


@lru_cache(KEPT_PATTERNS)
def _compile(pattern: str) -> Any:
    # Only groups that subscribe with a pattern need the engine; the others are spared its memory.
    import re2  # noqa: PLC0415

    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex has {len(pattern)} characters; {MAX_PATTERN_CHARACTERS} are the most"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {_text(error)}."
        ) from None
    if compiled.programsize > MAX_INSTRUCTIONS:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex compiles to {compiled.programsize} instructions; {MAX_INSTRUCTIONS} are the most"
        )
    return compiled


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
