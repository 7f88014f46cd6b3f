"""Reads what Linux tells of itself in `/proc` and `/sys`, and asks it whether the clock is synchronized.

A fact is None where the operating system does not tell it.
"""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TIME_ERROR = 5  # what adjtimex(2) returns while nothing synchronizes the clock
TIMEX_BYTES = 256  # more than a struct timex has; zeros ask to change nothing
KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """One machine, or the control group that this process has of it.

    `open_files` is the hard limit of a process, None without one. `memory_bytes` is the machine's memory, or the
    limit of the control group. The dirty pages are in percent of the memory that is available.
    """

    open_files: int | None
    memory_bytes: int | None
    swap_bytes: int | None
    swappiness: int | None
    dirty_background_percent: float | None
    dirty_percent: float | None
    clock_is_synchronized: bool | None


def read_machine() -> MachineFacts:
    """Returns the facts of this machine."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    memory = _memory()
    total = memory.get("MemTotal")
    return MachineFacts(
        open_files=None if hard == resource.RLIM_INFINITY else hard,
        memory_bytes=min(filter(None, (total, *_group_limits())), default=None),
        swap_bytes=memory.get("SwapTotal"),
        swappiness=_number(Path("/proc/sys/vm/swappiness")),
        dirty_background_percent=_dirty_percent("dirty_background", total),
        dirty_percent=_dirty_percent("dirty", total),
        clock_is_synchronized=_clock_is_synchronized(),
    )


def _memory() -> dict[str, int]:
    """Returns the rows of /proc/meminfo that are in KiB, as bytes."""
    found = {}
    for line in _text(Path("/proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if unit == "kB":
            found[name] = int(number) * KIB
    return found


def _group_limits() -> Iterable[int]:
    """Yields the limits of memory of this process's control groups; "max" is none."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            top, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        group = top / path.strip("/")
        for one in (group, *group.parents):
            if one.is_relative_to(top) and (limit := _number(one / name)) is not None:
                yield limit


def _dirty_percent(name: str, memory_bytes: int | None) -> float | None:
    """Returns a limit of dirty pages, which is given in bytes or, where that is 0, in percent."""
    in_bytes = _number(Path(f"/proc/sys/vm/{name}_bytes"))
    if in_bytes and memory_bytes:
        return 100 * in_bytes / memory_bytes
    return _number(Path(f"/proc/sys/vm/{name}_ratio"))


def _clock_is_synchronized() -> bool | None:
    with suppress(AttributeError):  # only Linux has this call
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
        return None if state < 0 else bool(state != TIME_ERROR)
    return None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
