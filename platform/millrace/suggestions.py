"""What somebody who misspelt a name may have meant: the known name that is most like it, if one is like it at all."""

from __future__ import annotations

from collections.abc import Iterable

CUTOFF = 0.7  # of difflib's ratio: a letter too many, too few, or in another place, also in short names


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that is most like `name`, None where none is like it."""
    from difflib import get_close_matches  # noqa: PLC0415 -- for an error's words alone

    return next(iter(get_close_matches(name, known, n=1, cutoff=CUTOFF)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error's sentence about an unknown name: `; did you mean …?`, "" where none is like it."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near}?"
