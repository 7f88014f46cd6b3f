"""AWS Glue as a catalog: its commits name the version of the table that they change, which Glue compares.

Servers that stand in for Glue may not compare, so that it is tried before the first commit.
"""

from __future__ import annotations

from botocore.exceptions import ClientError
from pyiceberg.catalog.glue import GlueCatalog as PyIcebergsCatalog

from millrace_pipelines.warehouse.iceberg.metadata_files import WritesEachVersion

NOBODYS_VERSION = "999999999999"
REFUSALS = ("ConcurrentModificationException", "EntityNotFoundException", "InvalidInputException")


class GlueCatalog(WritesEachVersion, PyIcebergsCatalog):
    """PyIceberg's catalog of Glue."""

    def compares(self, identifier: tuple[str, ...]) -> bool:
        """Returns whether the server refuses a change of a version that a table has not; the table stays as it is."""
        database, name = self.identifier_to_database_and_table(identifier)
        table = self.glue.get_table(DatabaseName=database, Name=name)["Table"]
        members = self.glue.meta.service_model.shape_for("TableInput").members
        given = {member: value for member, value in table.items() if member in members}
        try:
            self.glue.update_table(DatabaseName=database, TableInput=given, SkipArchive=True, VersionId=NOBODYS_VERSION)
        except ClientError as error:
            if error.response["Error"]["Code"] not in REFUSALS:
                raise
            return True
        return False
