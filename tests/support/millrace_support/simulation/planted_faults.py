"""Faults that are planted in the code of brokers and controllers: a simulation has to find each of them.

    PYTHONPATH=tests/support .venv/bin/python -m millrace_support.simulation.planted_faults [NAME ...]

finds the first seed that shows each fault, or each of those that are named, and writes it to `found_by.txt`. The search
of a test begins there. Other code has other histories, so a seed in that file is only a hint.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from millrace.errors import SetupError
from millrace_support.simulation import (
    controller_faults,
    coordinator_faults,
    eligibility_faults,
    follower_faults,
    healing_faults,
    leader_faults,
    log_faults,
    release_faults,
    transaction_faults,
    wire_faults,
)
from millrace_support.simulation.planting import Plant
from millrace_support.simulation.simulation import play

FAULTS: Mapping[str, Plant] = {
    **leader_faults.FAULTS,
    **follower_faults.FAULTS,
    **controller_faults.FAULTS,
    **eligibility_faults.FAULTS,
    **coordinator_faults.FAULTS,
    **transaction_faults.FAULTS,
    **log_faults.FAULTS,
    **wire_faults.FAULTS,
    **healing_faults.FAULTS,
    **release_faults.FAULTS,
}
MOST_SEEDS = 1000
FOUND_BY = Path(__file__).with_name("found_by.txt")


def hints() -> dict[str, int]:
    """Returns the seeds that have found faults, by the names of these."""
    lines = (line.split() for line in FOUND_BY.read_text().splitlines())
    return {name: int(seed) for name, seed in lines}


def find(name: str, first: int = 0) -> int | None:
    """Plants a fault and returns the seed that shows it, the next one from `first` on; None where none does."""
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[name](patch)
        return next((seed for seed in range(first, first + MOST_SEEDS) if _shows(seed)), None)


def _shows(seed: int) -> bool:
    try:
        return bool(play(seed).anomalies)
    except SetupError:  # this clone's history lacks the former release, which the seed needs
        return False


def refresh(names: Iterable[str]) -> None:
    """Finds faults from seed 0 on, and writes down which seed has found each."""
    known = hints()
    for name in names:
        seed = find(name)
        print(name, "is not found" if seed is None else seed, flush=True)  # noqa: T201
        if seed is not None:
            known[name] = seed
        lines = (f"{each} {known[each]}\n" for each in FAULTS if each in known)
        FOUND_BY.write_text("".join(lines))


if __name__ == "__main__":
    refresh(sys.argv[1:] or FAULTS)
