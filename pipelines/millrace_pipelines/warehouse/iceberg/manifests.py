"""The data files of a snapshot, as Iceberg's manifests list them: read, and written for a commit that appends.

    snapshot ─► manifest list ─► manifests ─► entries: a data file each, with rows, partition, nulls and bounds

A commit writes one manifest, of its own files, and a list of that one and all before it. Where MERGED_AT manifests of
data are smaller than TARGET_BYTES, it writes one in their place; the entries keep the snapshots that added them.
Manifests never change, so that what was read of them is kept in memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile as IcebergFile,
)
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
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, PrimitiveType, TimestampType, TimestamptzType

from millrace.times import EPOCH
from millrace_pipelines.warehouse.table.files import Bound, DataFile

MERGED_AT = 64
TARGET_BYTES = 8 << 20
CODEC: Final[AvroCompressionCodec] = "deflate"
VERSION: Final = 2
HOUR_S, DAY_S = 3600, 86_400
MICROSECONDS = 1_000_000


class ListedFile(NamedTuple):
    """A data file in a manifest.

    Attributes:
        path: Its whole address.
        size_bytes: Its size.
        rows: How many rows it has.
        snapshot_id: The snapshot that added it.
        partition: The values of its partition, in the order of its spec's fields.
        spec_id: The spec of its partition.
        nulls: How many nulls columns have, by field id.
        bounds: The least and greatest values of columns as Iceberg writes them, by field id.
    """

    path: str
    size_bytes: int
    rows: int
    snapshot_id: int
    partition: tuple[object, ...]
    spec_id: int
    nulls: Mapping[int, int]
    bounds: Mapping[int, tuple[bytes, bytes]]


def manifests_of(snapshot: Snapshot | None, io: FileIO) -> list[ManifestFile]:
    """Returns the manifests of a snapshot; none for None."""
    return [] if snapshot is None else snapshot.manifests(io)


def listed_files(snapshot: Snapshot | None, io: FileIO) -> Iterator[ListedFile]:
    """Yields the data files of a snapshot."""
    for manifest in manifests_of(snapshot, io):
        if manifest.content == ManifestContent.DATA:
            yield from _listed(_Manifest(manifest, io))


def has_deletes(snapshot: Snapshot | None, io: FileIO) -> bool:
    """Returns whether another engine deleted rows of the snapshot's files by files or vectors of deletions."""
    return any(
        manifest.content == ManifestContent.DELETES and (manifest.has_added_files() or manifest.has_existing_files())
        for manifest in manifests_of(snapshot, io)
    )


class _Manifest:
    """A manifest and how it is read; one that was read is known by its path."""

    def __init__(self, manifest: ManifestFile, io: FileIO) -> None:
        self.manifest = manifest
        self.io = io

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Manifest) and self.manifest.manifest_path == other.manifest.manifest_path

    def __hash__(self) -> int:
        return hash(self.manifest.manifest_path)


@lru_cache(maxsize=4 * MERGED_AT)
def _listed(one: _Manifest) -> tuple[ListedFile, ...]:
    return tuple(_listed_file(entry, one.manifest) for entry in one.manifest.fetch_manifest_entry(one.io))


def _listed_file(entry: ManifestEntry, manifest: ManifestFile) -> ListedFile:
    file = entry.data_file
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return ListedFile(
        path=file.file_path,
        size_bytes=file.file_size_in_bytes,
        rows=file.record_count,
        snapshot_id=entry.snapshot_id or manifest.added_snapshot_id or 0,
        partition=tuple(file.partition[index] for index in range(len(file.partition))),
        spec_id=manifest.partition_spec_id,
        nulls=file.null_value_counts or {},
        bounds={one: (lower[one], upper[one]) for one in lower.keys() & upper.keys()},
    )


def bounds_of(file: ListedFile, field_id: int, kind: PrimitiveType) -> tuple[Any, Any] | None:
    """Returns the least and greatest value of a column, None where the manifest does not say them."""
    if field_id not in file.bounds:
        return None
    low, high = file.bounds[field_id]
    return from_bytes(kind, low), from_bytes(kind, high)


def partition_texts(file: ListedFile, spec: PartitionSpec) -> dict[str, str | None]:
    """Returns the values of a file's partition as Millrace writes them, by name."""
    return {
        field.name: _partition_text(value, is_day=isinstance(field.transform, DayTransform))
        for field, value in zip(spec.fields, file.partition, strict=True)
    }


def _partition_text(value: object, *, is_day: bool) -> str | None:
    if value is None or isinstance(value, date):
        return None if value is None else value.isoformat()
    moment = datetime.fromtimestamp(int(str(value)) * (DAY_S if is_day else HOUR_S), EPOCH.tzinfo)
    return moment.date().isoformat() if is_day else f"{moment:%Y-%m-%d %H:%M:%S}"


def _partition_value(text: str | None, *, is_day: bool) -> int | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text).replace(tzinfo=EPOCH.tzinfo)
    return int((moment - EPOCH).total_seconds()) // (DAY_S if is_day else HOUR_S)


def entry_of(file: DataFile, metadata: TableMetadata) -> IcebergFile:
    """Returns a written data file as a manifest lists it."""
    schema, spec = metadata.schema(), metadata.spec()
    partition = Record(*(
        _partition_value(file.partition_values.get(field.name), is_day=isinstance(field.transform, DayTransform))
        for field in spec.fields
    ))  # fmt: skip
    fields = {field.name: field for field in schema.fields}
    nulls = {fields[name].field_id: nulls for name, nulls in file.statistics.get("nullCount", {}).items()}
    entry = IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{metadata.location.rstrip('/')}/{file.name}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        value_counts=dict.fromkeys(nulls, file.rows),
        null_value_counts=nulls,
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
) -> WrittenSnapshot:
    """Writes the manifests of a snapshot that has the current one's files and these, none of which is named yet."""
    parent = metadata.current_snapshot()
    folder, name = f"{metadata.location.rstrip('/')}/metadata", f"{snapshot_id}-{uuid.uuid4()}"
    before, written = manifests_of(parent, io), []
    if len(merged := _to_be_merged(before, metadata.default_spec_id)) >= MERGED_AT:
        written.append(f"{folder}/{name}-merged.avro")
        kept = [entry for one in merged for entry in one.fetch_manifest_entry(io)]
        paths = {one.manifest_path for one in merged}
        before = [one for one in before if one.manifest_path not in paths]
        before.insert(0, _write(written[-1], kept, metadata, io, snapshot_id))
    if files:
        written.append(f"{folder}/{name}.avro")
        added = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=entry_of(file, metadata)
            )
            for file in files
        ]
        before.insert(0, _write(written[-1], added, metadata, io, snapshot_id))
    listed = f"{folder}/snap-{name}.avro"
    with write_manifest_list(
        VERSION, io.new_output(listed), snapshot_id,
        None if parent is None else parent.snapshot_id, sequence_number, CODEC,
    ) as output:  # fmt: skip
        output.add_manifests(before)
    return WrittenSnapshot(listed, (*written, listed))


def _to_be_merged(manifests: Iterable[ManifestFile], spec_id: int) -> list[ManifestFile]:
    return [
        one
        for one in manifests
        if one.content == ManifestContent.DATA
        and one.partition_spec_id == spec_id
        and one.manifest_length < TARGET_BYTES
    ]


def _write(
    path: str, entries: Iterable[ManifestEntry], metadata: TableMetadata, io: FileIO, snapshot_id: int
) -> ManifestFile:
    schema, spec = metadata.schema(), metadata.spec()
    with write_manifest(VERSION, spec, schema, io.new_output(path), snapshot_id, CODEC) as output:
        for entry in entries:
            if entry.snapshot_id == snapshot_id:
                output.add(entry)
            else:
                output.existing(entry)
    return output.to_manifest_file()
