"""The formats of tables: which one an address means. All else sees a `Table`, and knows no format.

/srv/warehouse/flights, s3://bucket/flights, …      Delta (`delta`), at any address of a store
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace_pipelines.machine import CLOCK
from millrace_pipelines.warehouse.delta import commits
from millrace_pipelines.warehouse.delta.table import Table as DeltaLog
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.table import Table


def address_of(table: str, fs: FileSystem) -> str:
    """Returns the address of a table as all of Millrace writes it; raises AddressError where none can be meant."""
    return store_at(table, fs).location


def location_of(address: str, fs: FileSystem) -> str:
    """Returns where the files of a table are; raises TableNotFoundError where only a catalog can tell, and has none."""
    return store_at(address, fs).location


def load_table(address: str, fs: FileSystem, clock: Clock = CLOCK) -> Table:
    """Loads the newest version of a table, and changes nothing.

    Raises:
        TableNotFoundError: There is no table.
        TableRefusedError: It uses something of its format with which it can't be read.
        WarehouseError: It can't be read.
    """
    return DeltaLog.load(address, fs, clock)


def load_if_there(address: str, fs: FileSystem) -> Table | None:
    """Returns the newest version of a table; None where there is none."""
    try:
        return load_table(address, fs)
    except TableNotFoundError:
        return None


def load_to_write(address: str, fs: FileSystem, clock: Clock = CLOCK, *, access: Access = Access.APPEND) -> Table:
    """Loads the newest version of a table for a commit to build on; what a crash left of it is repaired and synced.

    Raises:
        TableRefusedError: The table uses something of its format that the access can't obey.
        LedgerError: Its ledger and its rows don't belong together.
    """
    return DeltaLog.load_to_write(address, fs, clock, access=access)


def load_or_create(
    address: str,
    fs: FileSystem,
    *,
    schema: pa.Schema,
    name: str,
    configuration: Mapping[str, str],
    partition_by: Sequence[str] = (),
    deletion_vectors: bool = False,
    clock: Clock = CLOCK,
    access: Access = Access.APPEND,
) -> Table:
    """Loads a table as `load_to_write` does for `access`, and creates it where there is none.

    Where two processes create it at the same time, one of them does and both load it.
    """
    return DeltaLog.load_or_create(
        address, fs,
        schema=schema, name=name, configuration=configuration, partition_by=partition_by,
        deletion_vectors=deletion_vectors, clock=clock, access=access,
    )  # fmt: skip


def is_newest(address: str, version: int, fs: FileSystem) -> bool:
    """Returns whether `version` is the newest commit of a table; costs less than loading it."""
    return commits.is_newest(address, version, fs)
