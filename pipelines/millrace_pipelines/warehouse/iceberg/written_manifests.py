"""The manifests that a commit writes: of the files that it adds, and again those that list files which it removes.

    added files          a manifest of their own: status ADDED; they get the commit's sequence number
    a manifest with      written again: files that stay are EXISTING, the removed ones DELETED; each keeps the sequence
    removed files        numbers that it had
    all others           named again, but for those without a file that is left

Where MERGED_AT manifests of data are smaller than TARGET_BYTES, one is written in their place. A removed file is listed
without bounds: another engine may have written some of texts, and one of these may be a key that is erased now.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import groupby
from typing import Final, NamedTuple

from pyiceberg.avro.codecs import AvroCompressionCodec
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
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, PrimitiveType, TimestampType, TimestamptzType

from millrace.times import EPOCH
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.iceberg.manifests import (
    DAY_S,
    DIGEST_ID,
    HOUR_S,
    files_in,
    has_live_files,
    manifests_of,
)
from millrace_pipelines.warehouse.table.files import Bound, DataFile

MERGED_AT = 64
TARGET_BYTES = 8 << 20
CODEC: Final[AvroCompressionCodec] = "deflate"
VERSION: Final = 2
MICROSECONDS = 1_000_000


class WrittenSnapshot(NamedTuple):
    """The list of manifests of a snapshot that is to be committed, and all files that were written for it."""

    manifest_list: str
    written: tuple[str, ...]


def write_snapshot(
    files: Sequence[DataFile],
    metadata: TableMetadata,
    io: FileIO,
    *,
    snapshot_id: int,
    sequence_number: int,
    schema: Schema,
    removed: Collection[str] = (),
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
    """
    return _Writer(metadata, io, snapshot_id, schema).write(files, removed, sequence_number)


class _Writer:
    """Writes the manifests of one snapshot, whose names it keeps."""

    def __init__(self, metadata: TableMetadata, io: FileIO, snapshot_id: int, schema: Schema) -> None:
        self._metadata = metadata
        self._io = io
        self._id = snapshot_id
        self._schema = schema
        self._name = f"{metadata.location.rstrip('/')}/metadata/{{}}{snapshot_id}-{uuid.uuid4()}{{}}.avro"
        self._written: list[str] = []

    def write(self, files: Sequence[DataFile], removed: Collection[str], sequence_number: int) -> WrittenSnapshot:
        parent = self._metadata.current_snapshot()
        kept = list(self._kept([one for one in manifests_of(parent, self._io) if has_live_files(one)], removed))
        listed = self._name.format("snap-", "")
        with write_manifest_list(
            VERSION, self._io.new_output(listed), self._id,
            None if parent is None else parent.snapshot_id, sequence_number, CODEC,
        ) as output:  # fmt: skip
            output.add_manifests([*self._added(files), *kept])
        return WrittenSnapshot(listed, (*self._written, listed))

    def _added(self, files: Sequence[DataFile]) -> Iterator[ManifestFile]:
        """Writes the manifests of added files, one for each partition spec."""
        specs = [spec_of(file, self._metadata) for file in files]
        ordered = sorted(zip(specs, files, strict=True), key=lambda one: one[0].spec_id)
        for _, group in groupby(ordered, key=lambda one: one[0].spec_id):
            entries = [
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=self._id,
                    data_file=entry_of(file, self._metadata.location, spec, self._schema),
                )
                for spec, file in group
            ]  # fmt: skip
            yield self._manifest(entries, entries[0].data_file.spec_id, ())

    def _kept(self, manifests: Sequence[ManifestFile], removed: Collection[str]) -> Iterator[ManifestFile]:
        """Returns the manifests before, in place of some of them others that were written now."""
        small = [one for one in manifests if _is_small(one, self._metadata.default_spec_id)]
        merged = {one.manifest_path for one in small} if len(small) >= MERGED_AT else set()
        if merged:
            entries = [entry for one in small for entry in one.fetch_manifest_entry(self._io)]
            yield self._manifest(entries, self._metadata.default_spec_id, removed)
        for one in manifests:
            if one.manifest_path in merged:
                continue
            if removed and any(file.path in removed for file in files_in(one, self._io)):
                yield self._manifest(one.fetch_manifest_entry(self._io), one.partition_spec_id, removed)
            else:
                yield one

    def _manifest(self, entries: Iterable[ManifestEntry], spec_id: int, removed: Collection[str]) -> ManifestFile:
        path = self._name.format("", f"-m{len(self._written)}")
        self._written.append(path)
        spec = self._metadata.specs()[spec_id]
        with write_manifest(VERSION, spec, self._schema, self._io.new_output(path), self._id, CODEC) as output:
            for entry in entries:
                if entry.data_file.file_path in removed:
                    output.delete(_without_bounds(entry))
                elif entry.snapshot_id == self._id:
                    output.add(entry)
                else:
                    output.existing(entry)
        return output.to_manifest_file()


def _is_small(manifest: ManifestFile, spec_id: int) -> bool:
    return (
        manifest.content == ManifestContent.DATA
        and manifest.partition_spec_id == spec_id
        and manifest.manifest_length < TARGET_BYTES
    )


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
    nulls = {fields[name].field_id: nulls for name, nulls in file.statistics.get("nullCount", {}).items()}
    entry = IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location.rstrip('/')}/{file.name}",
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


def _bounds(said: Mapping[str, Bound], fields: Mapping[str, NestedField]) -> Iterator[tuple[int, bytes]]:
    for name, bound in said.items():
        field = fields[name]
        if isinstance(field.field_type, PrimitiveType):
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
