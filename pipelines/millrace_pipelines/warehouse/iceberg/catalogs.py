"""The catalogs in which Iceberg tables are found; the one door to PyIceberg's catalogs.

A catalog has the name and the settings that PyIceberg's own configuration gives it (`.pyiceberg.yaml`,
`PYICEBERG_CATALOG__NAME__URI`, …). A folder has an embedded one, which needs no server and no configuration:

    DIR/catalog.sqlite          PyIceberg's SQL catalog `default`, in SQLite
    DIR/NAMESPACE/NAME/         a table: its data files, and `metadata/`

Where no catalog is named, and PyIceberg's configuration has none for that, the folder is `millrace/iceberg` in the
user's data folder (`XDG_DATA_HOME`).

A commit has to be a compare-and-swap. By the protocol of REST catalogs it is one, and in SQL it is an update with a
condition; for Hive's metastore and Glue (`hive`, `glue`) it is tried before the first commit of a process. Into any
other kind of catalog nothing is committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from pyiceberg.catalog import Catalog, infer_catalog_type, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergsSqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.utils.config import Config
from sqlalchemy.exc import DBAPIError, IntegrityError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from millrace.errors import WarehouseError
from millrace.extras import require
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.errors import AddressError, CatalogError, TableNotFoundError, UnsafeStoreError
from millrace_pipelines.warehouse.iceberg.addresses import IcebergAddress, IcebergPlace
from millrace_pipelines.warehouse.iceberg.file_io import IMPLEMENTATION, SyncedFileIO, make_folders
from millrace_pipelines.warehouse.iceberg.metadata_files import WritesEachVersion

SYNCED = f"{SyncedFileIO.__module__}.{SyncedFileIO.__qualname__}"
EMBEDDED_NAME = "default"
DATABASE = "catalog.sqlite"
LOCK_TIMEOUT_S = 60
MAKING_ATTEMPTS = 3
LOADING_ATTEMPTS = 8
TYPE, IMPLEMENTED = "type", "py-catalog-impl"
SERVERS = {"glue": "AWS Glue", "hive": "Hive's metastore"}
TRIED: set[tuple[str, str, int]] = set()
"""Holds the name and folder of each catalog that has refused a stale commit, and the process that tried it."""


class SqlCatalog(WritesEachVersion, PyIcebergsSqlCatalog):
    """PyIceberg's catalog in a database."""


@runtime_checkable
class _Tried(Protocol):
    """A catalog of which it has to be tried whether it refuses a commit on what is not there any more."""

    def compares(self, identifier: tuple[str, ...]) -> bool: ...


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


def forget_catalogs() -> None:
    """Forgets the catalogs that this process has opened, so that a changed configuration counts."""
    _catalog.cache_clear()
    TRIED.clear()


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
        return _opened(configured, {IMPLEMENTATION: SYNCED, **cast("dict[str, str]", settings)})
    except WarehouseError:
        raise
    except Exception as error:
        raise CatalogError(f"Iceberg catalog {configured} can't be opened: {_sentence(error)}") from error


def _embedded(folder: str) -> Catalog:
    make_folders(folder, DISK)
    settings = {
        "uri": f"sqlite:///{folder}/{DATABASE}?timeout={LOCK_TIMEOUT_S}",
        "warehouse": f"file://{folder}",
        IMPLEMENTATION: SYNCED,
    }
    try:
        return _opened(EMBEDDED_NAME, settings)
    except DBAPIError as error:
        raise CatalogError(f"{folder}/{DATABASE}: {_sentence(error)}") from error


@retry(retry=retry_if_exception_type(DBAPIError), stop=stop_after_attempt(MAKING_ATTEMPTS), reraise=True)
def _opened(name: str, settings: dict[str, str]) -> Catalog:
    """Opens a catalog; one in SQL again, where another process has just made its tables."""
    kind = _kind(name, settings)
    if kind in SERVERS:
        require(f"Iceberg's catalog in {SERVERS[kind]}", "catalogs")
    if kind == "hive":
        from millrace_pipelines.warehouse.iceberg.hive import HiveCatalog  # noqa: PLC0415  # few need Thrift

        return HiveCatalog(name, **settings)
    if kind == "glue":
        from millrace_pipelines.warehouse.iceberg.glue import GlueCatalog  # noqa: PLC0415  # few need boto3

        return GlueCatalog(name, **settings)
    return SqlCatalog(name, **settings) if kind == "sql" else load_catalog(name, **settings)


def _kind(name: str, settings: dict[str, str]) -> str:
    """Returns which kind of catalog settings mean, as PyIceberg tells it; "" where they name a class."""
    if IMPLEMENTED in settings or settings.get(TYPE):
        return settings.get(TYPE, "").lower()
    kind = infer_catalog_type(name, {**settings})
    return "" if kind is None else kind.value


def check_commits(address: IcebergAddress) -> None:
    """Makes sure that a table's catalog lets no commit overwrite another; the table stays as it is.

    Raises:
        UnsafeStoreError: It does, or it is of a kind of which that is not known.
        CatalogError: It can't be asked.
    """
    catalog, key = catalog_of(address), (address.catalog, address.folder, os.getpid())
    if isinstance(catalog, PyIcebergsSqlCatalog | RestCatalog) or key in TRIED:
        return
    if not isinstance(catalog, _Tried):
        raise UnsafeStoreError(
            f"{address}: rows are committed to catalogs in SQL, REST, Hive's metastore and Glue, and of "
            f"{type(catalog).__name__} it is not known whether two commits at once overwrite one another"
        )
    try:
        is_compared = catalog.compares(address.parts)
    except Exception as error:
        raise CatalogError(f"{address}: the catalog can't be asked: {_sentence(error)}") from error
    if not is_compared:
        raise UnsafeStoreError(
            f"{address}: its catalog does not compare what a commit expects, so that two loaders could overwrite one "
            "another's rows. Way on: Hive's metastore from 2.3.10 or 4.0, AWS's own Glue, or another catalog"
        )
    TRIED.add(key)


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


def tables_in(place: IcebergPlace) -> list[IcebergAddress]:
    """Returns the tables of a catalog or a namespace, with those of the namespaces in it; a table alone as itself.

    Raises:
        TableNotFoundError: There is no such catalog in a folder, or no such namespace or table.
        CatalogError: The catalog can't be asked.
    """
    if place.folder and not os.path.exists(os.path.join(place.folder, DATABASE)):
        raise TableNotFoundError(f"{place}: no Iceberg catalog in {place.folder}; all of one is iceberg:/FOLDER/")
    catalog = catalog_of(place.table(place.parts))
    try:
        if len(place.parts) > 1 and catalog.table_exists(place.parts):
            return [place.table(place.parts)]
        return sorted(place.table(tuple(one)) for one in _listed(catalog, place.parts))
    except NoSuchNamespaceError:
        raise TableNotFoundError(f"{place}: no such namespace, and no such table") from None
    except Exception as error:
        raise CatalogError(f"{place}: the catalog can't be asked: {_sentence(error)}") from error


def _listed(catalog: Catalog, namespace: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if namespace:
        yield from catalog.list_tables(namespace)
    for inner in catalog.list_namespaces(namespace):
        if len(inner) == len(namespace) + 1:
            yield from _listed(catalog, tuple(inner))


def make_namespace(address: IcebergAddress) -> None:
    """Creates the namespace of a table, and those above it, where they are missing."""
    catalog = catalog_of(address)
    if isinstance(catalog, _Tried) and len(address.namespace) > 1:
        raise AddressError(f"{address}: a namespace in {type(catalog).__name__} has one level")
    for depth in range(1, len(address.namespace) + 1):
        try:
            catalog.create_namespace_if_not_exists(address.namespace[:depth])
        except (NamespaceAlreadyExistsError, IntegrityError):  # another process was first
            continue
        except Exception as error:
            raise CatalogError(f"{address}: the namespace can't be made: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    """Returns what an error says, in one line, without SQLAlchemy's way to its documentation."""
    return " ".join(str(error).partition("(Background on this error")[0].split()) or type(error).__name__
