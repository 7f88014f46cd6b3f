"""How a table takes records: one row for each (append), or one for each key (upsert); a property of the table.

millrace.mode    upsert; a table without it appends
"""

from __future__ import annotations

from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.tables.choices import Mode

MODE_PROPERTY = "millrace.mode"


def mode_properties(mode: Mode | None) -> dict[str, str]:
    """Returns the properties of a new table of a mode."""
    return {MODE_PROPERTY: str(Mode.UPSERT)} if mode is Mode.UPSERT else {}


def mode_of(table: Table) -> Mode:
    """Returns a table's mode; raises ModeError for an unknown one."""
    mode = table.configuration.get(MODE_PROPERTY, Mode.APPEND)
    try:
        return Mode(mode)
    except ValueError:
        raise ModeError(f"{table.location}: {MODE_PROPERTY} is {mode!r}, not one of {', '.join(Mode)}") from None


def check_mode(table: Table, mode: Mode | None) -> None:
    """Raises ModeError where a mode is requested that is not the table's."""
    if mode is not None and mode is not mode_of(table):
        raise ModeError(f"{table.location} was created for {mode_of(table)}, not {mode}; load into another table")
