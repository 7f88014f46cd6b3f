"""The tables that lie beside a table of rows and hold records of the same topic."""

from __future__ import annotations

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import TableNotFoundError


def companions(location: str, fs: FileSystem) -> list[str]:
    """Where the dead letters of a table are, if it has any."""
    candidates = [dead_letters_dir(location)]
    return [companion for companion in candidates if _is_table(companion, fs)]


def _is_table(companion: str, fs: FileSystem) -> bool:
    try:
        Table.load(companion, fs)
    except TableNotFoundError:
        return False
    return True
