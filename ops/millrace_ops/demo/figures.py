"""The figures of the demo: what the source says, what the table says, and whether the two are equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from millrace_ops.demo.carrier_delays import Delays
from millrace_pipelines.warehouse.ledger.ledger import Ledger


class Figure(NamedTuple):
    """A value that was found, beside the one that is expected."""

    name: str
    expected: int | str
    found: int | str

    @property
    def is_right(self) -> bool:
        """Whether the figure is the expected one."""
        return self.expected == self.found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo found.

    Attributes:
        table: The folder of the flights' table.
        counted: Its rows by carrier, the most first.
        ledger: Its offsets.
        delays: What the downstream job keeps of each carrier.
        figures: What is compared with the source.
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
        """Whether every figure is as expected."""
        return all(figure.is_right for figure in self.figures)


def carrier_counts(flights: pa.Table) -> dict[str, int]:
    """Counts the source's rows by carrier."""
    return dict(Counter(map(str, flights["carrier"].to_pylist())))
