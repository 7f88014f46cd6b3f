"""The manifests that a commit writes: of the files that it adds, and again those that list files which it removes.

    added files          a manifest of their own: status ADDED; they get the commit's sequence number
    a manifest with      written again: files that stay are EXISTING, the removed ones DELETED; each keeps the sequence
    removed files        numbers that it had
    all others           named again, but for those without a file that is left

So are deletion vectors, of which a data file has one at most: a manifest of their own for added ones, and again those
that list vectors of files that are removed or get another vector.

Where MERGED_AT manifests of data, or of vectors, are smaller than TARGET_BYTES, one is written in their place. A
removed file is listed without bounds: another engine may have written some of texts, and one of these may be a key that
is erased now.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from itertools import groupby
from typing import NamedTuple

from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, PrimitiveType, TimestampType, TimestamptzType

from millrace.times import EPOCH
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.iceberg.deletion_vectors import path_below
from millrace_pipelines.warehouse.iceberg.manifest_files import (
    NEWEST,
    Layout,
    next_row_id,
    read_entries,
    said,
    with_status,
    write_list,
    write_manifest,
)
from millrace_pipelines.warehouse.iceberg.manifests import (
    DAY_S,
    DIGEST_ID,
    HOUR_S,
    ListedDelete,
    ListedFile,
    deletes_in,
    files_in,
    has_live_files,
    listed_delete,
    manifests_of,
)
from millrace_pipelines.warehouse.table.files import Bound, DataFile, MarkedFile

MERGED_AT = 64
TARGET_BYTES = 8 << 20
MICROSECONDS = 1_000_000


class WrittenSnapshot(NamedTuple):
    """A snapshot that is to be committed.

    Attributes:
        manifest_list: The list of its manifests.
        written: All files that were written for it.
        row_ids: How many row ids its manifests were given.
        deletes_gone: What deleted rows before and is not in it: vectors, or files of positions of one data file.
    """

    manifest_list: str
    written: tuple[str, ...]
    row_ids: int
    deletes_gone: tuple[ListedDelete, ...]


class Marked(NamedTuple):
    """A data file that stays, and the vector that deletes rows of it from now on."""

    file: ListedFile
    vector: MarkedFile


def write_snapshot(
    files: Sequence[DataFile],
    metadata: TableMetadata,
    io: FileIO,
    *,
    snapshot_id: int,
    sequence_number: int,
    schema: Schema,
    removed: Collection[str] = (),
    marked: Sequence[Marked] = (),
) -> WrittenSnapshot:
    """Writes the manifests of a snapshot that no catalog names yet.

    Args:
        files: The files that it has and the current snapshot has not.
        metadata: The table's metadata with the current snapshot.
        io: The table's files.
        snapshot_id: Its id.
        sequence_number: Its number.
        schema: The table's schema after the commit.
        removed: The paths of files that the current snapshot has, and this one has not.
        marked: Files that both have, with other rows deleted.
    """
    paths = {one.file.path for one in marked}
    writer = _Writer(metadata, io, snapshot_id, schema, removed={*removed}, marked=paths)
    return writer.write(files, marked, sequence_number)


class _Writer:
    """Writes the manifests of one snapshot, whose names it keeps.

    Args:
        metadata: The table's metadata with the snapshot before it.
        io: The table's files.
        snapshot_id: The snapshot's id.
        schema: The table's schema after the commit.
        removed: The paths of data files that go.
        marked: The paths of data files that stay, and whose vectors go.
    """

    def __init__(
        self,
        metadata: TableMetadata,
        io: FileIO,
        snapshot_id: int,
        schema: Schema,
        *,
        removed: AbstractSet[str],
        marked: AbstractSet[str],
    ) -> None:
        self._metadata = metadata
        self._io = io
        self._id = snapshot_id
        self._schema = schema
        self._removed = removed
        self._unmarked = removed | marked
        self._name = f"{metadata.location.rstrip('/')}/metadata/{{}}{snapshot_id}-{uuid.uuid4()}{{}}.avro"
        self._written: list[str] = []
        self._deletes_gone: list[ListedDelete] = []

    def write(self, files: Sequence[DataFile], marked: Sequence[Marked], sequence_number: int) -> WrittenSnapshot:
        parent = self._metadata.current_snapshot()
        written = write_list(
            self._io.new_output(self._name.format("snap-", "")),
            [*self._added(files), *self._added_vectors(marked), *self._kept(parent)],
            version=self._metadata.format_version,
            snapshot_id=self._id,
            parent_id=None if parent is None else parent.snapshot_id,
            sequence_number=sequence_number,
            first_row_id=next_row_id(self._metadata),
        )
        return WrittenSnapshot(written.path, (*self._written, written.path), written.row_ids, (*self._deletes_gone,))

    def _added(self, files: Sequence[DataFile]) -> Iterator[ManifestFile]:
        specs = [spec_of(file, self._metadata) for file in files]
        location = self._metadata.location
        added = [entry_of(file, location, spec, self._schema) for spec, file in zip(specs, files, strict=True)]
        yield from self._of_new(added, ManifestContent.DATA)

    def _added_vectors(self, marked: Sequence[Marked]) -> Iterator[ManifestFile]:
        vectors = [vector_entry_of(one, self._metadata.location) for one in marked]
        yield from self._of_new(vectors, ManifestContent.DELETES)

    def _of_new(self, files: Sequence[IcebergFile], content: ManifestContent) -> Iterator[ManifestFile]:
        """Writes the manifests of added files, one for each partition spec."""
        for spec_id, group in groupby(sorted(files, key=_spec_id), key=_spec_id):
            entries = [
                ManifestEntry.from_args(
                    _table_format_version=NEWEST, status=ManifestEntryStatus.ADDED, snapshot_id=self._id, data_file=one
                )
                for one in group
            ]
            yield self._manifest(entries, spec_id, content)

    def _kept(self, parent: Snapshot | None) -> Iterator[ManifestFile]:
        """Returns the manifests before, in place of some of them others that were written now."""
        before = [one for one in manifests_of(parent, self._io) if has_live_files(one)]
        for content in (ManifestContent.DATA, ManifestContent.DELETES):
            manifests = [one for one in before if one.content == content]
            small = [one for one in manifests if _is_small(one, self._metadata.default_spec_id)]
            merged = {one.manifest_path for one in small} if len(small) >= MERGED_AT else set()
            if merged:
                entries = [entry for one in small for entry in read_entries(one, self._io)]
                yield self._again(entries, self._metadata.default_spec_id, content)
            for one in manifests:
                if one.manifest_path not in merged:
                    is_named = self._names_gone(one)
                    entries = read_entries(one, self._io) if is_named else []
                    yield self._again(entries, one.partition_spec_id, content) if is_named else one

    def _names_gone(self, manifest: ManifestFile) -> bool:
        """Returns whether a manifest lists a file, or a vector, that goes."""
        if not self._unmarked:
            return False
        if manifest.content == ManifestContent.DATA:
            return any(file.path in self._removed for file in files_in(manifest, self._io))
        return any(one.referenced in self._unmarked for one in deletes_in(manifest, self._io))

    def _again(self, entries: Sequence[ManifestEntry], spec_id: int, content: ManifestContent) -> ManifestFile:
        """Writes entries of earlier manifests into another one."""
        return self._manifest([self._moved(entry) for entry in entries], spec_id, content)

    def _moved(self, entry: ManifestEntry) -> ManifestEntry:
        file = entry.data_file
        if file.content == DataFileContent.DATA and file.file_path in self._removed:
            return with_status(_without_bounds(entry), ManifestEntryStatus.DELETED, self._id)
        if file.content != DataFileContent.DATA and said(file, "referenced_data_file") in self._unmarked:
            self._deletes_gone.append(listed_delete(file))
            return with_status(entry, ManifestEntryStatus.DELETED, self._id)
        return with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)

    def _manifest(self, entries: Sequence[ManifestEntry], spec_id: int, content: ManifestContent) -> ManifestFile:
        path = self._name.format("", f"-m{len(self._written)}")
        self._written.append(path)
        layout = Layout(self._metadata.format_version, self._metadata.specs()[spec_id], self._schema, content)
        return write_manifest(self._io.new_output(path), entries, layout, self._id)


def _spec_id(file: IcebergFile) -> int:
    return file.spec_id


def _is_small(manifest: ManifestFile, spec_id: int) -> bool:
    return manifest.partition_spec_id == spec_id and manifest.manifest_length < TARGET_BYTES


def _without_bounds(entry: ManifestEntry) -> ManifestEntry:
    """Returns an entry without the bounds of its file's columns."""
    for bounds in (entry.data_file.lower_bounds, entry.data_file.upper_bounds):
        if bounds:
            bounds.clear()
    return entry


def spec_of(file: DataFile, metadata: TableMetadata) -> PartitionSpec:
    """Returns the partition spec by which a file is named: the table's own, or one before it with the same names.

    Raises StaleLedgerError where another engine partitioned the table otherwise since the file was written.
    """
    newest = sorted(metadata.partition_specs, key=lambda one: (one.spec_id != metadata.default_spec_id, -one.spec_id))
    for spec in newest:
        if {field.name for field in spec.fields} == {*file.partition_values}:
            return spec
    raise StaleLedgerError(f"{file.name}: another engine has changed the table's partitions meanwhile")


def entry_of(file: DataFile, location: str, spec: PartitionSpec, schema: Schema) -> IcebergFile:
    """Returns a written data file, of a table at this location, as a manifest lists it."""
    partition = Record(*(
        _partition_value(file.partition_values.get(field.name), is_day=isinstance(field.transform, DayTransform))
        for field in spec.fields
    ))  # fmt: skip
    fields = {field.name: field for field in schema.fields}
    counted = file.statistics.get("nullCount", {})
    nulls = {fields[name].field_id: nulls for name, nulls in counted.items() if name in fields}
    entry = IcebergFile.from_args(
        _table_format_version=NEWEST,
        content=DataFileContent.DATA,
        file_path=path_below(location, file.name),
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        value_counts=dict.fromkeys(nulls, file.rows),
        null_value_counts=nulls,
        nan_value_counts=None if file.digest is None else {DIGEST_ID: int(file.digest, 16)},
        lower_bounds=dict(_bounds(file.statistics.get("minValues", {}), fields)),
        upper_bounds=dict(_bounds(file.statistics.get("maxValues", {}), fields)),
    )
    entry.spec_id = spec.spec_id
    return entry


def vector_entry_of(marked: Marked, location: str) -> IcebergFile:
    """Returns a vector that `deletion_vectors.mark_rows` wrote as a manifest lists it."""
    vector = marked.vector.vector
    entry = IcebergFile.from_args(
        _table_format_version=NEWEST,
        content=DataFileContent.POSITION_DELETES,
        file_path=path_below(location, vector["name"]),
        file_format=FileFormat.PUFFIN,
        partition=Record(*marked.file.partition),
        record_count=vector["cardinality"],
        file_size_in_bytes=vector["file_size"],
        referenced_data_file=marked.file.path,
        content_offset=vector["offset"],
        content_size_in_bytes=vector["size"],
    )
    entry.spec_id = marked.file.spec_id
    return entry


def _bounds(said: Mapping[str, Bound], fields: Mapping[str, NestedField]) -> Iterator[tuple[int, bytes]]:
    for name, bound in said.items():
        field = fields.get(name)  # a file may say the ids of its rows, too
        if field is not None and isinstance(field.field_type, PrimitiveType):
            yield field.field_id, to_bytes(field.field_type, _number(bound, field.field_type))


def _number(bound: Bound, kind: PrimitiveType) -> int:
    """Returns a bound as Iceberg has it: days or microseconds since 1970 for dates and times."""
    if isinstance(kind, DateType):
        return (date.fromisoformat(str(bound)) - EPOCH.date()).days
    if isinstance(kind, (TimestampType, TimestamptzType)):
        passed = datetime.fromisoformat(str(bound)) - EPOCH
        return (passed.days * DAY_S + passed.seconds) * MICROSECONDS + passed.microseconds
    return int(bound)


def _partition_value(text: str | None, *, is_day: bool) -> int | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text).replace(tzinfo=EPOCH.tzinfo)
    return int((moment - EPOCH).total_seconds()) // (DAY_S if is_day else HOUR_S)
