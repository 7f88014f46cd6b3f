"""Hive's metastore as a catalog whose commits are compare-and-swap, of any version since 2.3.

PyIceberg's catalog holds a lock of the metastore while it reads the table's metadata and sets the next. A lock ends by
time (`hive.txn.timeout`), so that a commit that was held up would overwrite those that came meanwhile. Here the request
that sets the metadata also says which it expects, and the metastore compares (HIVE-26882: since 2.3.10, and in 4.0).
The lock is taken all the same, for other engines rely on it; one that a killed program left is waited for.

Metastores since 4.0.1 know `get_table_req` alone, and PyIceberg asks for `get_table`. It has one connection, which
threads can't share; here each use has its own.
"""

from __future__ import annotations

from threading import local
from types import TracebackType
from typing import Any, cast

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import EnvironmentContext, GetTableRequest, GetTablesRequest, MetaException, UnlockRequest
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import METADATA_LOCATION, PREVIOUS_METADATA_LOCATION, URI
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
    _HiveClient,
)
from pyiceberg.catalog.hive import HiveCatalog as PyIcebergsCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TTransportException

EXPECTED_KEY, EXPECTED_VALUE = "expected_parameter_key", "expected_parameter_value"
REFUSED = "The table has been modified"
NOBODYS = "millrace: is this compared?"
PATIENCE = {"lock-check-min-wait-time": "0.05", "lock-check-max-wait-time": "0.5", "lock-check-retries": "120"}


class HiveCatalog(PyIcebergsCatalog):
    """PyIceberg's catalog of a metastore, whose commits are compared by the metastore itself."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **{**PATIENCE, **properties})

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        return cast("_HiveClient", _Connections(properties))

    def compares(self, identifier: tuple[str, ...]) -> bool:
        """Returns whether the metastore refuses a commit that expects what is not there; a table stays as it is."""
        database, name = self.identifier_to_database_and_table(identifier)
        with self._client as client:
            lock = client.lock(self._create_lock_request(database, name))
            try:
                self._wait_for_lock(database, name, lock.lockid, client)
                table = client.get_table(database, name)
                client.alter_table_expecting(database, name, table, NOBODYS)
            except CommitFailedException:
                return True
            finally:
                client.unlock(UnlockRequest(lockid=lock.lockid))
        return False


class _Requests(Client):  # type: ignore[misc]  # Thrift has made it, without types
    """The requests of PyIceberg's catalog, as newer metastores have them, and with what they expect."""

    def get_table(self, dbname: str, tbl_name: str) -> HiveTable:
        """Returns a table."""
        return self.get_table_req(GetTableRequest(dbName=dbname, tblName=tbl_name)).table

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[HiveTable]:
        """Returns tables of a database."""
        return list(self.get_table_objects_by_name_req(GetTablesRequest(dbName=dbname, tblNames=tbl_names)).tables)

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: HiveTable, environment_context: EnvironmentContext
    ) -> None:
        """Sets a table's next metadata; raises CommitFailedException where the table has not the one before."""
        expected = new_tbl.parameters.get(PREVIOUS_METADATA_LOCATION)
        if expected is None or (new_tbl.dbName, new_tbl.tableName) != (dbname, tbl_name):
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        else:
            self.alter_table_expecting(dbname, tbl_name, new_tbl, expected, **environment_context.properties)

    def alter_table_expecting(self, database: str, name: str, table: HiveTable, expected: str, **context: str) -> None:
        """Alters a table that has the metadata that is expected; raises CommitFailedException where it has not."""
        compared = {**context, EXPECTED_KEY: METADATA_LOCATION, EXPECTED_VALUE: expected}
        try:
            super().alter_table_with_environment_context(database, name, table, EnvironmentContext(properties=compared))
        except MetaException as error:
            if REFUSED not in str(error.message):
                raise
            raise CommitFailedException(str(error.message)) from error


class _Connection(_HiveClient):
    def _client(self) -> Client:
        client = _Requests(TBinaryProtocol(self._transport))
        if self._ugi:
            client.set_ugi(*self._ugi)
        return client


class _Connections:
    """Opens a connection for each use, to the first of the metastores that answers; each thread has its own."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self._properties = properties
        self._own = local()

    def __enter__(self) -> Client:
        *others, last = self._properties[URI].split(",")
        for uri in others:
            try:
                return self._opened(uri)
            except TTransportException:
                continue
        return self._opened(last)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own.connection.__exit__(kind, error, trace)

    def _opened(self, uri: str) -> Client:
        self._own.connection = _Connection(
            uri,
            self._properties.get("ugi"),
            property_as_bool(self._properties, HIVE_KERBEROS_AUTH, default=False),
            self._properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
        )
        return self._own.connection.__enter__()
