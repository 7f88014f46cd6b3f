"""Manifests and lists of them as files: Avro, in format versions 2 and 3, by PyIceberg's schemas and its Avro.

    manifest list     a manifest each: path, size, spec, sequence numbers, counts, first row id
    manifest          an entry each: status, sequence numbers, a data file or what deletes rows of one

Version 3 gives each row an id: a data file's first row id and the row's number. A file that is added has none yet; it
follows on the manifest's, after the rows of those before it, and the manifest gets one in the first list that names it.
So nothing is written again where a commit is made again on a later version. An entry that is written into another
manifest says the first row id that it had.

PyIceberg itself reads neither row ids nor where a deletion vector begins, and writes no version 3.

Source: the Iceberg table specification, "Manifests", "Manifest Lists", "Row Lineage".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, AvroCompressionCodec
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    construct_partition_summaries,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import TableVersion

NEWEST: Final = 3
VECTORS_FROM: Final = 3
CODEC: Final[AvroCompressionCodec] = "deflate"
UNASSIGNED = -1
LIST_FIRST_ROW_ID = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[NEWEST].fields].index("first_row_id")
FILE_FIELDS = {field.name: index for index, field in enumerate(DATA_FILE_TYPE[NEWEST].fields)}
FileField: TypeAlias = Literal["first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes"]


class WrittenList(NamedTuple):
    """A list of manifests that was written, and how many row ids its manifests were given."""

    path: str
    row_ids: int


class Layout(NamedTuple):
    """How a manifest is written: format version, partition spec, columns, and whether it has data or deletes."""

    version: TableVersion
    spec: PartitionSpec
    schema: Schema
    content: ManifestContent


def said(file: DataFile, field: FileField) -> Any:
    """Returns a field of version 3 of a file that `read_entries` has read; None where it is not said."""
    return file[FILE_FIELDS[field]]


def first_row_id_of(manifest: ManifestFile) -> int | None:
    """Returns the first row id of a manifest that `read_list` has read; None where it has none."""
    number: int | None = manifest[LIST_FIRST_ROW_ID]
    return number


def next_row_id(metadata: TableMetadata) -> int:
    """Returns the first row id that a table has not given; 0 before format version 3."""
    return (metadata.next_row_id or 0) if isinstance(metadata, TableMetadataV3) else 0


def read_list(path: str, io: FileIO) -> list[ManifestFile]:
    """Returns the manifests that a list names."""
    with AvroFile[ManifestFile](
        io.new_input(path),
        MANIFEST_LIST_FILE_SCHEMAS[NEWEST],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


def read_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Returns the entries of a manifest that are not removed, with all that they inherit from it."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[NEWEST],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        return list(_inherited((one for one in reader if one.status != ManifestEntryStatus.DELETED), manifest))


def _inherited(entries: Iterator[ManifestEntry], manifest: ManifestFile) -> Iterator[ManifestEntry]:
    next_id = first_row_id_of(manifest)
    for entry in entries:
        file, is_new = entry.data_file, entry.status == ManifestEntryStatus.ADDED or manifest.sequence_number == 0
        file.spec_id = manifest.partition_spec_id
        if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
            entry.snapshot_id = manifest.added_snapshot_id
        if entry.sequence_number is None and is_new:
            entry.sequence_number = manifest.sequence_number
        if entry.file_sequence_number is None and is_new:
            entry.file_sequence_number = manifest.sequence_number
        if next_id is None:
            file[FILE_FIELDS["first_row_id"]] = None
        elif said(file, "first_row_id") is None:
            file[FILE_FIELDS["first_row_id"]] = next_id
            next_id += file.record_count
        yield entry


def with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    """Returns an entry for the same file with another status, which a snapshot has given it."""
    return ManifestEntry.from_args(
        _table_format_version=NEWEST, status=status, snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number, file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )  # fmt: skip


def write_manifest(
    output: OutputFile, entries: Sequence[ManifestEntry], layout: Layout, snapshot_id: int
) -> ManifestFile:
    """Writes a manifest of at least one entry; returns what a list says of it."""
    whole, form = (
        manifest_entry_schema_with_data_file(
            version, data_file_with_partition(layout.spec.partition_type(layout.schema), version)
        )
        for version in (NEWEST, layout.version)
    )
    with AvroOutputFile[ManifestEntry](
        output, file_schema=form, schema_name="manifest_entry", record_schema=whole, metadata=_described(layout)
    ) as stream:
        stream.write_block([*entries])
    return _listed(output, entries, layout, snapshot_id)


def _described(layout: Layout) -> dict[str, str]:
    """Returns what a manifest's header says."""
    fields = ",".join(field.model_dump_json() for field in layout.spec.fields)
    return {
        "schema": layout.schema.model_dump_json(),
        "partition-spec": f"[{fields}]",
        "partition-spec-id": str(layout.spec.spec_id),
        "format-version": str(layout.version),
        "content": "data" if layout.content == ManifestContent.DATA else "deletes",
        AVRO_CODEC_KEY: CODEC,
    }


def _listed(output: OutputFile, entries: Sequence[ManifestEntry], layout: Layout, snapshot_id: int) -> ManifestFile:
    files = {status: [one.data_file for one in entries if one.status == status] for status in ManifestEntryStatus}
    rows = {status: sum(file.record_count for file in some) for status, some in files.items()}
    added, existing, deleted = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED
    numbers = [one.sequence_number for one in entries if one.status != deleted and one.sequence_number is not None]
    return ManifestFile.from_args(
        _table_format_version=NEWEST,
        manifest_path=output.location,
        manifest_length=len(output),
        partition_spec_id=layout.spec.spec_id,
        content=layout.content,
        sequence_number=UNASSIGNED,
        min_sequence_number=min(numbers, default=UNASSIGNED),
        added_snapshot_id=snapshot_id,
        added_files_count=len(files[added]),
        existing_files_count=len(files[existing]),
        deleted_files_count=len(files[deleted]),
        added_rows_count=rows[added],
        existing_rows_count=rows[existing],
        deleted_rows_count=rows[deleted],
        partitions=construct_partition_summaries(
            layout.spec, layout.schema, [one.data_file.partition for one in entries]
        ),
    )


def write_list(
    output: OutputFile,
    manifests: Iterable[ManifestFile],
    *,
    version: TableVersion,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    first_row_id: int,
) -> WrittenList:
    """Writes the list of a snapshot's manifests.

    Args:
        output: The file.
        manifests: The manifests, of which those that no list has named yet have no sequence number.
        version: The table's format version.
        snapshot_id: The snapshot's id.
        parent_id: That of the snapshot before it.
        sequence_number: Its number.
        first_row_id: The first row id that the table has not given.
    """
    ordered, row_id = [_numbered(one, sequence_number) for one in manifests], first_row_id
    if has_ids := version >= VECTORS_FROM:
        for manifest in ordered:
            if manifest.content == ManifestContent.DATA and first_row_id_of(manifest) is None:
                manifest[LIST_FIRST_ROW_ID] = row_id
                row_id += (manifest.existing_rows_count or 0) + (manifest.added_rows_count or 0)
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        **({"first-row-id": str(first_row_id)} if has_ids else {}),
        "format-version": str(version),
        AVRO_CODEC_KEY: CODEC,
    }
    with AvroOutputFile[ManifestFile](
        output,
        file_schema=MANIFEST_LIST_FILE_SCHEMAS[version],
        schema_name="manifest_file",
        record_schema=MANIFEST_LIST_FILE_SCHEMAS[NEWEST],
        metadata=header,
    ) as stream:
        stream.write_block(ordered)
    return WrittenList(output.location, row_id - first_row_id)


def _numbered(manifest: ManifestFile, sequence_number: int) -> ManifestFile:
    """Returns what a list says of a manifest, with the snapshot's number in place of one that is missing."""
    listed = ManifestFile(*(manifest[index] for index in range(len(manifest))))
    if listed.sequence_number == UNASSIGNED:
        listed.sequence_number = sequence_number
    if listed.min_sequence_number == UNASSIGNED:
        listed.min_sequence_number = sequence_number
    return listed
