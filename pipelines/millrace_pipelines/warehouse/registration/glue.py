"""Entries of Delta tables in AWS Glue, as Athena and Spark's connectors read them; AWS's usual settings hold."""

from __future__ import annotations

import boto3
from botocore.exceptions import ClientError

from millrace_pipelines.warehouse.registration.entry import FORMATS, PROPERTIES, SERDE, Entry

MISSING, THERE = "EntityNotFoundException", "AlreadyExistsException"


class GlueEntries:
    """The entry of one name in Glue.

    Args:
        database: The database, which is made where it is missing.
        name: The table's name.
    """

    def __init__(self, database: str, name: str) -> None:
        self._glue = boto3.client("glue")
        self._database = database
        self._name = name

    def find(self) -> Entry | None:
        """Returns the entry of the name; None where there is none."""
        try:
            table = self._glue.get_table(DatabaseName=self._database, Name=self._name)["Table"]
        except ClientError as error:
            if error.response["Error"]["Code"] == MISSING:
                return None
            raise
        storage = table.get("StorageDescriptor", {})
        return Entry(
            storage.get("Location", ""), tuple((one["Name"], one["Type"]) for one in storage.get("Columns", ()))
        )

    def put(self, entry: Entry, before: Entry | None) -> None:
        """Makes the entry, or sets its columns where there was one before."""
        reading, writing = FORMATS
        given = {
            "Name": self._name,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {**PROPERTIES, "EXTERNAL": "TRUE"},
            "StorageDescriptor": {
                "Columns": [{"Name": name, "Type": kind} for name, kind in entry.columns],
                "Location": entry.location,
                "InputFormat": f"org.apache.hadoop.mapred.{reading}",
                "OutputFormat": f"org.apache.hadoop.hive.ql.io.{writing}",
                "SerdeInfo": {"SerializationLibrary": SERDE, "Parameters": {"path": entry.location}},
            },
        }
        if before is not None:
            self._glue.update_table(DatabaseName=self._database, TableInput=given)
            return
        try:
            self._glue.create_database(DatabaseInput={"Name": self._database})
        except ClientError as error:
            if error.response["Error"]["Code"] != THERE:
                raise
        self._glue.create_table(DatabaseName=self._database, TableInput=given)
