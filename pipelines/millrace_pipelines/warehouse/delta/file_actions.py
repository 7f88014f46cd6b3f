"""The actions by which a commit to Delta's log adds and removes data files."""

from __future__ import annotations

import json

from deltalake.transaction import AddAction, RemoveAction

from millrace_pipelines.warehouse.table.files import DIGEST, DataFile, NamedFile


def add_action(file: DataFile, modified_ms: int, *, data_change: bool = True) -> AddAction:
    """Returns Delta's add action for a file; `data_change` is False where its rows come from removed files."""
    statistics: dict[str, object] = {"numRecords": file.rows, **file.statistics}
    if file.digest is not None:
        statistics[DIGEST] = file.digest
    stats = json.dumps(statistics)
    return AddAction(file.name, file.size_bytes, file.partition_values, modified_ms, data_change, stats)


def remove_action(file: NamedFile, now_ms: int, *, data_change: bool = True) -> RemoveAction:
    """Returns Delta's remove action for a file."""
    return RemoveAction(file.name, data_change, now_ms, file.size_bytes, dict(file.partition_values))
