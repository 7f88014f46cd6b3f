"""What is in a table's folder, by readers that are not Millrace's: delta-rs and pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable


def rows_at(location: str, *columns: str, options: Mapping[str, str] | None = None) -> Counter[tuple[object, ...]]:
    """Returns how often each row is in a table, by the columns that are named."""
    table = DeltaTable(location, storage_options=dict(options or {})).to_pyarrow_table(columns=list(columns))
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def stray_files(folder: str) -> set[str]:
    """Returns the names of the data files in a table's folder that its log does not name."""
    named = {Path(path).name for path in DeltaTable(folder).file_uris()}
    return {path.name for path in Path(folder).rglob("*.parquet") if "_delta_log" not in path.parts} - named
