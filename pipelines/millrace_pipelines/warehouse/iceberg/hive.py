"""Hive's metastore as a catalog whose commits are compare-and-swap.

PyIceberg's catalog holds a lock of the metastore while it reads the table's metadata and sets the next. A lock ends by
time (`hive.txn.timeout`), so that a commit that was held up would overwrite those that came meanwhile. Here the request
that sets the metadata also says which it expects, and the metastore compares (HIVE-26882: since 2.3.10, and in 4.0).
The lock is taken all the same, for other engines rely on it; one that a killed program left is waited for.
"""

from __future__ import annotations

from typing import cast

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import Table as HiveTable
from hive_metastore.ttypes import UnlockRequest
from pyiceberg.catalog.hive import HiveCatalog as PyIcebergsCatalog
from pyiceberg.catalog.hive import _HiveClient
from pyiceberg.exceptions import CommitFailedException

from millrace_pipelines.warehouse.iceberg.metadata_files import WritesEachVersion
from millrace_pipelines.warehouse.metastore import Connections

NOBODYS = "millrace: is this compared?"
PATIENCE = {"lock-check-min-wait-time": "0.05", "lock-check-max-wait-time": "0.5", "lock-check-retries": "120"}


class HiveCatalog(WritesEachVersion, PyIcebergsCatalog):
    """PyIceberg's catalog of a metastore, whose commits are compared by the metastore itself."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **{**PATIENCE, **properties})

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        return cast("_HiveClient", Connections(properties))

    def compares(self, identifier: tuple[str, ...]) -> bool:
        """Returns whether the metastore refuses a commit that expects what is not there; a table stays as it is."""
        database, name = self.identifier_to_database_and_table(identifier)
        with self._client as client:
            lock = client.lock(self._create_lock_request(database, name))
            try:
                self._wait_for_lock(database, name, lock.lockid, client)
                return _is_refused(client, client.get_table(database, name))
            finally:
                client.unlock(UnlockRequest(lockid=lock.lockid))


def _is_refused(client: Client, table: HiveTable) -> bool:
    """Returns whether a table, as it is, is refused where other metadata is expected of it than it has."""
    try:
        client.alter_table_expecting(table.dbName, table.tableName, table, NOBODYS)
    except CommitFailedException:
        return True
    return False
