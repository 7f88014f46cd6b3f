"""The door to Hive's metastore, of any version since 2.3: a connection for each use, and alterations that are compared.

Metastores since 4.0.1 know `get_table_req` alone, and PyIceberg asks for `get_table`. Its catalog has one connection,
which threads can't share; here each use has its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import local
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import EnvironmentContext, GetTableRequest, GetTablesRequest, MetaException, UnlockRequest
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import METADATA_LOCATION, PREVIOUS_METADATA_LOCATION, URI
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
)
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportBase, TTransportException

logger = logging.getLogger(__name__)

EXPECTED_KEY, EXPECTED_VALUE = "expected_parameter_key", "expected_parameter_value"
REFUSED = "The table has been modified"


class _Requests(Client):  # type: ignore[misc]  # Thrift has made it, without types
    """The requests of PyIceberg's catalog, as newer metastores have them, and with what they expect.

    Args:
        protocol: The connection.
        others: What opens another one.
    """

    def __init__(self, protocol: TBinaryProtocol, others: Connections) -> None:
        super().__init__(protocol)
        self._others = others

    def unlock(self, rqst: UnlockRequest) -> None:
        """Ends a lock, by another connection where this one broke: it would stay for minutes, until its time is over.

        What was asked for under the lock may still be done. It is refused where another commit comes first.
        """
        try:
            super().unlock(rqst)
        except (TTransportException, OSError) as error:
            logger.info("lock %d is ended by another connection: %s", rqst.lockid, error)
            with self._others as client:
                Client.unlock(client, rqst)

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


class Connections:
    """Opens a connection for each use, to the first of the metastores that answers; each thread has its own.

    Args:
        properties: The settings of PyIceberg's catalog: `uri`, `ugi`, and those of Kerberos.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
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
        self._own.transport.close()

    def _opened(self, uri: str) -> Client:
        self._own.transport = self._transport(uri)
        self._own.transport.open()
        client = _Requests(TBinaryProtocol(self._own.transport), Connections(self._properties))
        if user := self._properties.get("ugi"):
            client.set_ugi(*user.split(":"))
        return client

    def _transport(self, uri: str) -> TTransportBase:
        address = urlsplit(uri)
        socket = TSocket(address.hostname, address.port)
        if not property_as_bool(self._properties, HIVE_KERBEROS_AUTH, default=False):
            return TBufferedTransport(socket)
        service = self._properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT)
        return TSaslClientTransport(socket, address.hostname, service)
