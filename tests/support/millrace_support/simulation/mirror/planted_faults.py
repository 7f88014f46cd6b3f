"""Faults that are planted in mirrors and in mirrored topics: the simulation of a mirror has to find each of them.

    PYTHONPATH=tests/support .venv/bin/python -m millrace_support.simulation.mirror.planted_faults [NAME ...]

finds the first seed that shows each fault, or each of those that are named, and writes it to `found_by.txt` beside this
module, where the search of a test begins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from millrace_support.simulation.mirror import broker_faults, copy_faults, follow_faults
from millrace_support.simulation.mirror.simulation import play
from millrace_support.simulation.planting import Plant

FAULTS: Mapping[str, Plant] = {**follow_faults.FAULTS, **copy_faults.FAULTS, **broker_faults.FAULTS}
MOST_SEEDS = 300
FOUND_BY = Path(__file__).with_name("found_by.txt")


def hints() -> dict[str, int]:
    """Returns the seeds that have found faults, by the names of these."""
    lines = (line.split() for line in FOUND_BY.read_text().splitlines()) if FOUND_BY.exists() else ()
    return {name: int(seed) for name, seed in lines}


def find(name: str, first: int = 0) -> int | None:
    """Plants a fault and returns the seed that shows it, the next one from `first` on; None where none does."""
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[name](patch)
        return next((seed for seed in range(first, first + MOST_SEEDS) if play(seed).anomalies), None)


def refresh(names: Iterable[str]) -> None:
    """Finds faults from seed 0 on, and writes down which seed has found each."""
    known = hints()
    for name in names:
        seed = find(name)
        print(name, "is not found" if seed is None else seed, flush=True)  # noqa: T201
        if seed is not None:
            known[name] = seed
        FOUND_BY.write_text("".join(f"{each} {known[each]}\n" for each in FAULTS if each in known))


if __name__ == "__main__":
    refresh(sys.argv[1:] or FAULTS)
