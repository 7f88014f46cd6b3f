"""The tables beside a table of rows that hold records of the same topic."""

from __future__ import annotations

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import TableNotFoundError


def companions(location: str, fs: FileSystem) -> list[str]:
    """Returns the locations of the tables beside a table: that of its dead letters, if it has one."""
    candidates = [dead_letters_dir(location)]
    return [companion for companion in candidates if _is_table(companion, fs)]


def _is_table(companion: str, fs: FileSystem) -> bool:
    try:
        Table.load(companion, fs)
    except TableNotFoundError:
        return False
    return True
