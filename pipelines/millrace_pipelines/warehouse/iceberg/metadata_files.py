"""A table's metadata as a file, which catalogs in SQL, Hive's metastore and Glue name, in each format version.

PyIceberg reads metadata of format version 3 and refuses to write it: what is missing for that is done here. A new table
has given no row id, which it has to say. A server of a REST catalog writes metadata itself.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel


class _Written(TableMetadataV3):
    """Metadata of format version 3 that can be written."""

    def model_dump_json(self, *args: Any, **kwargs: Any) -> str:
        """Returns it as JSON."""
        return IcebergBaseModel.model_dump_json(self, *args, **kwargs)


class WritesEachVersion:
    """A catalog that writes metadata of each format version; it comes before PyIceberg's class of a catalog."""

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        if isinstance(metadata, TableMetadataV3):
            metadata = _Written.model_construct(**{**dict(metadata), "next_row_id": metadata.next_row_id or 0})
        ToOutputFile.table_metadata(metadata, io.new_output(metadata_path))
