"""The ledgers of tables as sensors look at them, tick after tick, in a code server that lives for days.

A ledger of 100 partitions takes a tenth of a second to read, and the version of its table two milliseconds. So a ledger
is kept until its table has another version.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.defs.loads.due import TableLedger
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.ledger.ledger import Ledger, ledger_of


class _Kept(NamedTuple):
    table_id: str
    version: int
    ledger: Ledger


class LedgerReader:
    """Reads ledgers, and remembers each by the id and the version of its table."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def read(self, location: str) -> TableLedger:
        """Returns a table's newest ledger; None where there is no table, the error where it can't be read."""
        try:
            return self._newest(location)
        except TableNotFoundError:
            return None
        except WarehouseError as error:
            return error

    def _newest(self, location: str) -> Ledger:
        table = Table.load(location, OsFileSystem())
        kept = self._kept.get(location)
        if kept is None or (kept.table_id, kept.version) != (table.id, table.version):
            kept = self._kept[location] = _Kept(table.id, table.version, ledger_of(table))
        return kept.ledger
