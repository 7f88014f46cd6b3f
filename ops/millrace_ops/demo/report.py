"""Prints what the demo found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from rich.console import Console, Group
from rich.table import Table

from millrace_ops.demo.carrier_delays import Delays
from millrace_pipelines.warehouse.ledger.ledger import Ledger


class Figure(NamedTuple):
    """A figure of the demo, as it was found and as it is expected."""

    name: str
    expected: int | str
    found: int | str

    @property
    def is_right(self) -> bool:
        """Returns whether the figure is the expected one."""
        return self.expected == self.found


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures that the demo found.

    Attributes:
        table: The folder of the flights' table.
        counted: The table's rows by carrier, the most first.
        ledger: The offsets that the table holds.
        delays: By carrier, the counts and delays that the downstream job keeps.
        figures: The figures that are compared with the source.
        seconds: The time of each step.
    """

    table: str
    counted: Mapping[str, int]
    ledger: Ledger
    delays: Mapping[str, Delays]
    figures: Sequence[Figure]
    seconds: Mapping[str, float]

    @property
    def is_right(self) -> bool:
        """Returns whether every figure is as expected."""
        return all(figure.is_right for figure in self.figures)


def carrier_counts(flights: pa.Table) -> dict[str, int]:
    """Returns the number of flights in the source data by carrier."""
    return dict(Counter(map(str, flights["carrier"].to_pylist())))


def print_outcome(console: Console, outcome: Outcome, airlines: Mapping[str, str]) -> None:
    """Prints rows and delays per carrier, the ledger, figures beside the source's, timings, and where the table is."""
    carriers = (_carriers(outcome, airlines), _delays(outcome))
    tables = (*carriers, _ledger(outcome), _figures(outcome), _timings(outcome))
    if not console.is_terminal:
        for table in tables:
            table.box = None
    console.print(*tables, sep="\n")
    verdict = "[green]Every figure is right." if outcome.is_right else "[red]A figure is wrong."
    console.print(Group(verdict, f"The table is in {outcome.table}"))


def _carriers(outcome: Outcome, airlines: Mapping[str, str]) -> Table:
    table = _table("Flights per carrier, by Spark SQL", "carrier", "airline", rows="flights")
    for carrier, count in outcome.counted.items():
        table.add_row(carrier, airlines.get(carrier, ""), f"{count:,}")
    table.add_section()
    table.add_row("", "total", f"{sum(outcome.counted.values()):,}")
    return table


def _delays(outcome: Outcome) -> Table:
    table = Table("carrier", title="Mean delay in minutes, kept by a consumer group", title_justify="left")
    for column in ("flights", "cancelled", "departure", "arrival"):
        table.add_column(column, justify="right")
    for carrier in outcome.counted:
        if (delays := outcome.delays.get(carrier)) is not None:
            means = (delays.mean_departure_delay, delays.mean_arrival_delay)
            counts = (f"{delays.flights:,}", f"{delays.cancelled:,}")
            table.add_row(carrier, *counts, *("" if mean is None else f"{mean:.1f}" for mean in means))
    return table


def _ledger(outcome: Outcome) -> Table:
    table = Table("partition", title="The ledger in the table: offsets", title_justify="left")
    for column in ("from", "up to", "offsets"):
        table.add_column(column, justify="right")
    for partition, entry in sorted(outcome.ledger.partitions.items()):
        offsets = (entry.start_offset, entry.next_offset - 1, entry.next_offset - entry.start_offset)
        table.add_row(f"{outcome.ledger.topic}-{partition}", *(f"{offset:,}" for offset in offsets))
    return table


def _figures(outcome: Outcome) -> Table:
    table = Table("figure", title="Source and warehouse", title_justify="left")
    for column in ("source", "warehouse"):
        table.add_column(column, justify="right")
    table.add_column("")
    for figure in outcome.figures:
        mark = "[green]✓" if figure.is_right else "[red]✗"
        table.add_row(figure.name, _text(figure.expected), _text(figure.found), mark)
    return table


def _timings(outcome: Outcome) -> Table:
    table = _table("Timings", "step", rows="seconds")
    for step, seconds in outcome.seconds.items():
        table.add_row(step, f"{seconds:.1f}")
    table.add_section()
    table.add_row("all", f"{sum(outcome.seconds.values()):.1f}")
    return table


def _table(title: str, *columns: str, rows: str) -> Table:
    table = Table(*columns, title=title, title_justify="left")
    table.add_column(rows, justify="right")
    return table


def _text(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
