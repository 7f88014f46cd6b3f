"""Compiles the regular expressions that clients send, in the syntax of RE2, whose port to Java is Kafka's engine.

RE2 takes time in proportion to the text and to the size of the expression, which is bounded here: so no client can stop
a broker with one.
"""

from __future__ import annotations

from typing import Protocol

from millrace.errors import InvalidRegularExpressionError

MAX_PATTERN_CHARACTERS = 1 << 12
MAX_INSTRUCTIONS = 2_000


class Pattern(Protocol):
    """A compiled regular expression, as RE2 makes it."""

    @property
    def programsize(self) -> int:
        """Returns how many instructions the compiled expression has, as a measure of its size."""
        ...

    def fullmatch(self, text: str, /) -> object | None:
        """Returns a match where the whole text matches, else None."""
        ...


def compiled(pattern: str, field: str) -> Pattern:
    """Returns the compiled regular expression that a request has in `field`.

    Raises InvalidRegularExpressionError, which names the field, where the pattern can't be read or is too large.
    """
    # Only requests with a pattern need the engine, and its memory.
    import re2  # noqa: PLC0415

    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise InvalidRegularExpressionError(
            f"{field} has {len(pattern)} characters, of {MAX_PATTERN_CHARACTERS} that are allowed"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        found: Pattern = re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidRegularExpressionError(f"{field} can't be read: `{pattern}`: {_text(error)}") from None
    if found.programsize > MAX_INSTRUCTIONS:
        raise InvalidRegularExpressionError(
            f"{field} has {found.programsize} instructions, of {MAX_INSTRUCTIONS} that are allowed"
        )
    return found


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
