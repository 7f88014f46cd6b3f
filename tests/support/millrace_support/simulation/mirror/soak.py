"""Plays many seeds of the mirror, and says every so often how far it is.

    PYTHONPATH=tests/support .venv/bin/python -m millrace_support.simulation.mirror.soak [SEEDS [FIRST]]

ends with 1 where a seed has shown an anomaly, and prints each of them when it is found.
"""

from __future__ import annotations

import sys
import time

from millrace_support.simulation.mirror.simulation import play

SEEDS, LINE_EVERY = 10_000, 100


def soak(seeds: int, first: int = 0) -> list[int]:
    """Plays so many seeds from `first` on; returns those that have shown an anomaly."""
    failed: list[int] = []
    acknowledged, begun_s = 0, time.process_time()
    for number, seed in enumerate(range(first, first + seeds), 1):
        outcome = play(seed)
        acknowledged += outcome.acknowledged
        if outcome.anomalies:
            failed.append(seed)
            print(f"seed {seed}:", *outcome.anomalies, sep="\n  ", flush=True)  # noqa: T201
        if not number % LINE_EVERY or number == seeds:
            per_seed = (time.process_time() - begun_s) / number
            line = f"{number} of {seeds} seeds, {acknowledged:,} records acknowledged, {per_seed:.2f} s each"
            print(f"{line}, {len(failed)} with anomalies", flush=True)  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(bool(soak(*map(int, sys.argv[1:])) if sys.argv[1:] else soak(SEEDS)))
