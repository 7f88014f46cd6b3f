"""Collects faults that can be planted: functions that change code by a `pytest.MonkeyPatch`, by their names.

FAULTS = Plants()

@FAULTS.add
def needs_one_replica_in_sync(patch: pytest.MonkeyPatch) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

Plant = Callable[["pytest.MonkeyPatch"], None]


class Plants(dict[str, Plant]):
    """Faults by their names."""

    def add(self, plant: Plant) -> Plant:
        """Adds a fault by the name of its function, which it returns."""
        self[plant.__name__] = plant
        return plant
