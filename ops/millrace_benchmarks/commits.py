"""`millrace bench commits`: what a commit to an Iceberg table costs beside one to a Delta table, and after how many.

Each table gets commits of one row, as loads make them, in turn with the other tables, so that all see the same machine.
Counted are the last hundred before a mark: from the written data file to a commit that a power cut does not take,
the kept copies of ledger and lineage included. The Iceberg table is in the embedded catalog; with `--peer rest` a
second one is in Iceberg's own REST catalog server (`make iceberg`), both with that server's files in SQLite.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path

from millrace.times import SECOND_MS
from millrace_benchmarks.harness import Figure, beside_goal
from millrace_benchmarks.iceberg_rest import rest_catalog
from millrace_benchmarks.load_commits import commit_row, made_table
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.table.table import Table


class Peer(StrEnum):
    """The catalogs beside the embedded one in which a table is measured."""

    REST = "rest"


PEERS = tuple(Peer)
MARKS = (1_000, 10_000)
COUNTED = 100
DELTA, EMBEDDED = "Delta", "the embedded catalog"
GOALS = {EMBEDDED: 2.0, Peer.REST: 5.0}
METADATA_GOAL_KB = 1_000


def run(place: Path, peer: Peer | None = None, marks: Sequence[int] = MARKS) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with ExitStack() as stack:
        addresses = {DELTA: str(place / "delta"), EMBEDDED: f"iceberg:{place}/lake/bench.commits"}
        if peer is not None:
            addresses[peer] = f"iceberg:{stack.enter_context(rest_catalog(place))}/bench.commits"
        tables = {name: made_table(address) for name, address in addresses.items()}
        seconds: dict[str, list[float]] = {name: [] for name in tables}
        figures: list[Figure] = []
        for number in range(max(marks)):
            for name, table in tables.items():
                seconds[name].append(commit_row(table, number))
            if number + 1 in marks:
                figures += _at_mark(number + 1, tables, seconds)
        return figures


def _at_mark(mark: int, tables: Mapping[str, Table], seconds: Mapping[str, Sequence[float]]) -> list[Figure]:
    medians = {name: statistics.median(times[-COUNTED:]) * SECOND_MS for name, times in seconds.items()}
    means = {name: statistics.fmean(times[-COUNTED:]) * SECOND_MS for name, times in seconds.items()}
    figures = []
    for name in tables:
        if name == DELTA:
            continue
        figures += [
            Figure(
                name=f"commit {mark:,}, Iceberg by {name}", value=medians[name], unit="ms",
                yardstick=DELTA, yardstick_value=medians[DELTA], at_most=GOALS[name],
            ),
            Figure(name="· the mean", value=means[name], unit="ms", yardstick=DELTA, yardstick_value=means[DELTA]),
            beside_goal("· its metadata.json", _metadata_kilobytes(tables[name]), "KB", METADATA_GOAL_KB),
        ]  # fmt: skip
    return figures


def _metadata_kilobytes(table: Table) -> float:
    found = load_table(table.address, DISK)
    return Path(found.root, found.marker).stat().st_size / 1000
