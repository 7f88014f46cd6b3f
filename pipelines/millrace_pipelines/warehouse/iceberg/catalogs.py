"""The catalogs in which Iceberg tables are found; the one door to PyIceberg's catalogs.

A catalog has the name and the settings that PyIceberg's own configuration gives it (`.pyiceberg.yaml`,
`PYICEBERG_CATALOG__NAME__URI`, …). A folder has an embedded one, which needs no server and no configuration:

    DIR/catalog.sqlite          PyIceberg's SQL catalog `default`, in SQLite
    DIR/NAMESPACE/NAME/         a table: its data files, and `metadata/`

Where no catalog is named, and PyIceberg's configuration has none for that, the folder is `millrace/iceberg` in the
user's data folder (`XDG_DATA_HOME`).
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import cast

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.utils.config import Config
from sqlalchemy.exc import IntegrityError, OperationalError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from millrace.errors import WarehouseError
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.errors import AddressError, CatalogError, TableNotFoundError
from millrace_pipelines.warehouse.iceberg.addresses import IcebergAddress
from millrace_pipelines.warehouse.iceberg.file_io import IMPLEMENTATION, SyncedFileIO, make_folders

SYNCED = f"{SyncedFileIO.__module__}.{SyncedFileIO.__qualname__}"
EMBEDDED_NAME = "default"
DATABASE = "catalog.sqlite"
LOCK_TIMEOUT_S = 60
MAKING_ATTEMPTS = 3
LOADING_ATTEMPTS = 8


def catalog_of(address: IcebergAddress) -> Catalog:
    """Returns the catalog of a table, whether it has that table or not.

    Raises:
        AddressError: No such catalog is configured.
        CatalogError: It can't be reached.
    """
    return _catalog(address.catalog, address.folder, os.getpid())


def default_folder() -> str:
    """Returns the folder of the embedded catalog that is used where none is named or configured."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return os.path.join(data, "millrace", "iceberg")


@lru_cache(maxsize=16)
def _catalog(name: str, folder: str, _process: int) -> Catalog:
    """Returns a catalog, of which a process has one; a fork shares no connection with its parent."""
    if folder:
        return _embedded(folder)
    config = Config()
    configured = name or config.get_default_catalog_name()
    settings = config.get_catalog_config(configured)
    if settings is None:
        if name:
            known = ", ".join(config.get_known_catalogs()) or "none"
            raise AddressError(f"{name}: PyIceberg's configuration has no such catalog; it has {known}")
        return _embedded(default_folder())
    try:
        return load_catalog(configured, **{IMPLEMENTATION: SYNCED, **cast("dict[str, str]", settings)})
    except Exception as error:
        raise CatalogError(f"Iceberg catalog {configured} can't be opened: {_sentence(error)}") from error


def _embedded(folder: str) -> Catalog:
    make_folders(folder, DISK)
    settings = {
        "uri": f"sqlite:///{folder}/{DATABASE}?timeout={LOCK_TIMEOUT_S}",
        "warehouse": f"file://{folder}",
        IMPLEMENTATION: SYNCED,
    }
    for attempt in range(MAKING_ATTEMPTS):
        try:
            return SqlCatalog(EMBEDDED_NAME, **settings)
        except OperationalError as error:  # another process has just made its tables
            if attempt == MAKING_ATTEMPTS - 1:
                raise CatalogError(f"{folder}/{DATABASE}: {_sentence(error)}") from error
    raise AssertionError


def load(address: IcebergAddress) -> PyIcebergTable:
    """Loads a table as its catalog has it now.

    Raises:
        TableNotFoundError: The catalog has no such table.
        CatalogError: It can't be asked, or the table's metadata can't be read.
    """
    try:
        return catalog_of(address).load_table(address.parts)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise TableNotFoundError(f"{address}: no Iceberg table here") from None
    except WarehouseError:
        raise
    except Exception as error:
        raise CatalogError(f"{address}: the catalog can't be asked: {_sentence(error)}") from error


@retry(
    retry=retry_if_exception_type(CatalogError),
    stop=stop_after_attempt(LOADING_ATTEMPTS),
    wait=wait_random_exponential(multiplier=0.1, max=5),
    reraise=True,
)
def load_patiently(address: IcebergAddress) -> PyIcebergTable:
    """Loads a table as `load` does, and asks again for a while where the catalog does not answer."""
    return load(address)


def make_namespace(address: IcebergAddress) -> None:
    """Creates the namespace of a table, and those above it, where they are missing."""
    catalog = catalog_of(address)
    for depth in range(1, len(address.namespace) + 1):
        try:
            catalog.create_namespace_if_not_exists(address.namespace[:depth])
        except (NamespaceAlreadyExistsError, IntegrityError):  # another process was first
            continue


def _sentence(error: Exception) -> str:
    """Returns what an error says, in one line, without SQLAlchemy's way to its documentation."""
    return " ".join(str(error).partition("(Background on this error")[0].split()) or type(error).__name__
