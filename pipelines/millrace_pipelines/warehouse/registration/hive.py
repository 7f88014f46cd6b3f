"""Entries of Delta tables in Hive's metastore, as Spark's and Trino's connectors read them."""

from __future__ import annotations

import getpass
import time
from contextlib import suppress

from hive_metastore.ttypes import (
    AlreadyExistsException,
    Database,
    EnvironmentContext,
    FieldSchema,
    NoSuchObjectException,
    SerDeInfo,
    StorageDescriptor,
    Table,
)

from millrace_pipelines.warehouse.metastore import Connections
from millrace_pipelines.warehouse.registration.entry import FORMATS, PROPERTIES, SERDE, Entry

EXTERNAL = {"EXTERNAL": "TRUE"}
KEEP_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}


class HiveEntries:
    """The entry of one name in a metastore.

    Args:
        uri: `thrift://HOST:PORT`, or several with commas between.
        database: The database, which is made where it is missing.
        name: The table's name.
    """

    def __init__(self, uri: str, database: str, name: str) -> None:
        self._connections = Connections({"uri": uri})
        self._database = database
        self._name = name

    def find(self) -> Entry | None:
        """Returns the entry of the name; None where there is none."""
        with self._connections as client:
            try:
                table = client.get_table(self._database, self._name)
            except NoSuchObjectException:
                return None
        return Entry(table.sd.location, tuple((one.name, one.type) for one in table.sd.cols))

    def put(self, entry: Entry, before: Entry | None) -> None:
        """Makes the entry, or sets its columns where there was one before."""
        with self._connections as client:
            if before is not None:
                table = client.get_table(self._database, self._name)
                table.sd.cols = _columns(entry)
                context = EnvironmentContext(properties=KEEP_STATISTICS)
                client.alter_table_with_environment_context(self._database, self._name, table, context)
                return
            with suppress(AlreadyExistsException):
                client.create_database(Database(name=self._database, parameters={}))
            client.create_table(self._new(entry))

    def _new(self, entry: Entry) -> Table:
        now_s = int(time.time())
        reading, writing = FORMATS
        return Table(
            dbName=self._database,
            tableName=self._name,
            owner=getpass.getuser(),
            createTime=now_s,
            lastAccessTime=now_s,
            tableType="EXTERNAL_TABLE",
            parameters={**PROPERTIES, **EXTERNAL},
            sd=StorageDescriptor(
                _columns(entry),
                entry.location,
                f"org.apache.hadoop.mapred.{reading}",
                f"org.apache.hadoop.hive.ql.io.{writing}",
                serdeInfo=SerDeInfo(serializationLib=SERDE, parameters={"path": entry.location}),
            ),
        )


def _columns(entry: Entry) -> list[FieldSchema]:
    return [FieldSchema(name, kind, None) for name, kind in entry.columns]
