"""The formats of tables: which one an address means. All else sees a `Table`, and knows no format.

/srv/warehouse/flights, s3://bucket/flights, …      Delta (`delta`), at any address of a store
iceberg:NAMESPACE.NAME, iceberg:CATALOG/…           Iceberg (`iceberg`), by its name in a catalog
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace_pipelines.machine import CLOCK
from millrace_pipelines.warehouse.choices import Format
from millrace_pipelines.warehouse.delta import commits
from millrace_pipelines.warehouse.delta.table import Table as DeltaLog
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.iceberg.addresses import PREFIX, is_iceberg, parse_address, parse_place
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.table import NOT_PARTITIONED, Table

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.iceberg.table import Table as IcebergTable


def _iceberg() -> type[IcebergTable]:
    """Returns the Iceberg tables, for which much is imported that other tables do without."""
    from millrace_pipelines.warehouse.iceberg.table import Table as IcebergTable  # noqa: PLC0415

    return IcebergTable


def format_of(address: str) -> Format:
    """Returns the format of the table that an address means."""
    return Format.ICEBERG if is_iceberg(address) else Format.DELTA


def address_in(catalog: str, name: str, *, is_table: bool = True) -> str:
    """Returns the address of a table in a catalog, or of a namespace.

    Args:
        catalog: The catalog's name, or the folder of an embedded one; "" for the one that PyIceberg takes by itself.
        name: NAMESPACE.NAME, or the whole address of a table.
        is_table: Whether it is a table.

    Raises:
        AddressError: No table or namespace can be meant.
    """
    address = name if is_iceberg(name) else f"{PREFIX}{catalog.rstrip('/')}{'/' if catalog else ''}{name}"
    return str(parse_address(address) if is_table else parse_place(address))


def table_below(place: str, name: str) -> str:
    """Returns the address of a table below a folder, a bucket or a namespace."""
    return f"{place}.{name.replace('.', '_')}" if is_iceberg(place) else f"{place.rstrip('/')}/{name}"


def name_of(address: str) -> str:
    """Returns a table's short name: that of its folder, or NAMESPACE.NAME in a catalog."""
    return ".".join(parse_address(address).parts) if is_iceberg(address) else address.rstrip("/").rpartition("/")[2]


def tables_in(place: str) -> list[str]:
    """Returns the addresses of the tables in a catalog or a namespace, which `place` names, in their order.

    Raises:
        TableNotFoundError: There is no such place.
        CatalogError: The catalog can't be asked.
    """
    from millrace_pipelines.warehouse.iceberg import catalogs  # noqa: PLC0415  # much is imported for it

    return [str(one) for one in catalogs.tables_in(parse_place(place))]


def address_of(table: str, fs: FileSystem) -> str:
    """Returns the address of a table as all of Millrace writes it; raises AddressError where none can be meant."""
    if is_iceberg(table):
        return str(parse_address(table))
    return store_at(table, fs).location


def location_of(address: str, fs: FileSystem) -> str:
    """Returns where the files of a table are; raises TableNotFoundError where only a catalog can tell, and has none."""
    if is_iceberg(address):
        return _iceberg().load(address, fs).location
    return store_at(address, fs).location


def load_table(address: str, fs: FileSystem, clock: Clock = CLOCK) -> Table:
    """Loads the newest version of a table, and changes nothing.

    Raises:
        TableNotFoundError: There is no table.
        TableRefusedError: It uses something of its format with which it can't be read.
        WarehouseError: It can't be read.
    """
    return _iceberg().load(address, fs, clock) if is_iceberg(address) else DeltaLog.load(address, fs, clock)


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
    if is_iceberg(address):
        return _iceberg().load_to_write(address, fs, clock, access=access)
    return DeltaLog.load_to_write(address, fs, clock, access=access)


def load_or_create(
    address: str,
    fs: FileSystem,
    *,
    schema: pa.Schema,
    name: str,
    configuration: Mapping[str, str],
    partition_by: Mapping[str, str] = NOT_PARTITIONED,
    deletion_vectors: bool = False,
    clock: Clock = CLOCK,
    access: Access = Access.APPEND,
) -> Table:
    """Loads a table as `load_to_write` does for `access`, and creates it where there is none.

    Where two processes create it at the same time, one of them does and both load it. `partition_by` names the columns
    by which files are apart, each with the column that it is derived from.
    """
    if is_iceberg(address):
        return _iceberg().load_or_create(
            address, fs,
            schema=schema, name=name, configuration=configuration, partition_by=partition_by,
            deletion_vectors=deletion_vectors, clock=clock, access=access,
        )  # fmt: skip
    return DeltaLog.load_or_create(
        address, fs,
        schema=schema, name=name, configuration=configuration, partition_by=partition_by,
        deletion_vectors=deletion_vectors, clock=clock, access=access,
    )  # fmt: skip


def is_newest(address: str, version: int, fs: FileSystem) -> bool:
    """Returns whether `version` is the newest commit of a table; costs less than loading it."""
    if is_iceberg(address):
        return _iceberg().load(address, fs).version == version
    return commits.is_newest(address, version, fs)
