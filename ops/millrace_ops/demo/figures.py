"""The figures of the demo: what the source says, what the table says, and whether they are equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from millrace_pipelines.warehouse.ledger.ledger import Ledger


class Figure(NamedTuple):
    """One thing that must be as expected."""

    name: str
    expected: int | str
    found: int | str

    @property
    def is_right(self) -> bool:
        """Whether it is."""
        return self.expected == self.found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo found; `counted` are the table's rows by carrier, the most first, `seconds` those of each step."""

    table: str
    counted: Mapping[str, int]
    ledger: Ledger
    figures: Sequence[Figure]
    seconds: Mapping[str, float]

    @property
    def is_right(self) -> bool:
        """Whether every figure is as the source says."""
        return all(figure.is_right for figure in self.figures)


def carrier_counts(flights: pa.Table) -> dict[str, int]:
    """The source's rows by carrier."""
    return dict(Counter(map(str, flights["carrier"].to_pylist())))
