"""Waits for what another thread, process or machine brings about: each wait has an end, and says what came instead."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 300.0
PAUSE_S = 0.02


def until(look: Callable[[], T], holds: Callable[[T], object] = bool, *, pause_s: float = PAUSE_S) -> T:
    """Returns what `look` returns once that is true, or once `holds` is true of it.

    Raises:
        AssertionError: It does not come about within five minutes; the message has what `look` returned last.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not holds(found := look()):
        assert time.monotonic() < deadline, f"still {found}"
        time.sleep(pause_s)
    return found


def awaited(look: Callable[[], T | None], what: str, describe: Callable[[], str] = str) -> T:
    """Returns what `look` returns once that is not None.

    Raises:
        AssertionError: It stays None for five minutes; the message has `what` and the result of `describe`.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"in vain: {what}\n{describe()}"
        time.sleep(PAUSE_S)
    return found
