"""The dead letters as the audit meets them: without those that a replay has made rows of."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.completeness.contents import (
    NONE,
    OFFSET,
    PARTITION,
    Contents,
    Integers,
    RowGroup,
)
from millrace_pipelines.warehouse.dead_letters.letters import completed
from millrace_pipelines.warehouse.dead_letters.marks import MARKED_COLUMNS, pending_replay
from millrace_pipelines.warehouse.delta.table import Table


class Letters(Contents):
    """The files of one version of a table of dead letters, beside one version of the table of rows."""

    def __init__(self, rows: Table, dead_letters: Table, fs: FileSystem, names: AbstractSet[str] | None = None) -> None:
        super().__init__(dead_letters, fs, names, rows=rows)
        self._dead_letters = dead_letters
        self._pending = pending_replay(rows, dead_letters)

    def read(self, group: RowGroup) -> tuple[Integers, Integers]:
        """Reads partition and offset of each dead letter that is not a row."""
        found = self.columns_of(group, MARKED_COLUMNS)
        if found is None or not self.has_places(group, found, [PARTITION, OFFSET]):
            return NONE, NONE
        letters = completed(self._dead_letters, found, MARKED_COLUMNS)
        waits = letters.column("replay").is_null().to_numpy()
        if self._pending is not None:
            waits &= ~self._pending.mask(letters)
        partitions = letters.column("partition").to_numpy().astype(np.int64)
        return partitions[waits], letters.column("offset").to_numpy()[waits]
