"""The command that mends what an audit has found: offsets are read again from the topic, in place of what is there."""

from __future__ import annotations

from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import former_ledgers, ledger_of
from millrace_pipelines.warehouse.tables.choices import Mode
from millrace_pipelines.warehouse.tables.mode import mode_of


def way_on(rows: Table, partition: int | None, first: int, last: int, what: str = "them") -> str:
    """Returns what reads some offsets of a table again, as the end of a finding; None is for every partition.

    A table of newest records is reloaded up to its end, and one that has rows of former ledgers not at all.
    """
    if former_ledgers(rows):
        return "; load the topic into another table"
    of_partition = "" if partition is None else f" --partition {partition}"
    until = "" if mode_of(rows) is Mode.UPSERT else f" --until-offset {last + 1}"
    command = f"millrace warehouse reload {ledger_of(rows).topic} --table {rows.location}{of_partition}"
    return f"; `{command} --from-offset {first}{until}` reads {what} again"
