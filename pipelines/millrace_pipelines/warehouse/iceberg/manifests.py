"""The data files of a snapshot, as Iceberg's manifests list them.

    snapshot ─► manifest list ─► manifests ─► entries: a data file each, with rows, partition, nulls and bounds

A manifest has no place for the digest of a file, but for numbers by the ids of columns, also of those that a table has
no longer. Readers pass over ids that they don't know, and every engine that writes manifests again keeps the numbers.
So a file's CRC-32C is its number of NaNs in the column DIGEST_ID, which is beyond all ids that a table ever gives.

Rows of data files are deleted by files of positions and, in format version 3, by vectors, which manifests of their own
list. Manifests never change, so that what was read of them is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, HourTransform, Transform
from pyiceberg.types import PrimitiveType

from millrace.times import EPOCH
from millrace_pipelines.warehouse.iceberg.manifest_files import first_row_id_of, read_entries, read_list, said

CACHED_MANIFESTS = 256
DIGEST_ID = 2_147_480_000  # Iceberg reserves those from 2,147,483,447 on
HOUR_S, DAY_S = 3600, 86_400


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
        crc: The CRC-32C of its bytes; None where another engine wrote it.
        sequence_number: The number of the snapshot that its rows are of.
        first_row_id: The id of its first row; None where the table gives rows no ids, or has not yet.
    """

    path: str
    size_bytes: int
    rows: int
    snapshot_id: int
    partition: tuple[object, ...]
    spec_id: int
    nulls: Mapping[int, int]
    bounds: Mapping[int, tuple[bytes, bytes]]
    crc: int | None
    sequence_number: int
    first_row_id: int | None


class ListedDelete(NamedTuple):
    """What deletes rows of data files, in a manifest.

    Attributes:
        path: The whole address of its file.
        content: Whether it names rows by their positions or by values.
        file_format: The format of its file: a vector's is Puffin.
        referenced: The path of the only data file that it is for; None where it may be for several.
        offset: Where a vector begins in its file.
        size_bytes: A vector's size.
        rows: How many rows it deletes.
    """

    path: str
    content: DataFileContent
    file_format: FileFormat
    referenced: str | None
    offset: int
    size_bytes: int
    rows: int


def manifests_of(snapshot: Snapshot | None, io: FileIO) -> list[ManifestFile]:
    """Returns the manifests of a snapshot; none for None."""
    return [] if snapshot is None or snapshot.manifest_list is None else read_list(snapshot.manifest_list, io)


def listed_files(snapshot: Snapshot | None, io: FileIO) -> Iterator[ListedFile]:
    """Yields the data files of a snapshot."""
    for manifest in manifests_of(snapshot, io):
        if manifest.content == ManifestContent.DATA:
            yield from files_in(manifest, io)


def files_in(manifest: ManifestFile, io: FileIO) -> tuple[ListedFile, ...]:
    """Returns the files that a manifest lists and does not remove."""
    return _listed(_Manifest(manifest, io))


def deletes_in(manifest: ManifestFile, io: FileIO) -> tuple[ListedDelete, ...]:
    """Returns what a manifest of deletes lists and does not remove."""
    return _listed_deletes(_Manifest(manifest, io))


def listed_deletes(snapshot: Snapshot | None, io: FileIO) -> Iterator[ListedDelete]:
    """Yields what deletes rows of a snapshot's files."""
    for manifest in manifests_of(snapshot, io):
        if manifest.content == ManifestContent.DELETES and has_live_files(manifest):
            yield from deletes_in(manifest, io)


def has_live_files(manifest: ManifestFile) -> bool:
    """Returns whether a manifest lists a file that it does not remove."""
    return manifest.has_added_files() or manifest.has_existing_files()


class _Manifest:
    """A manifest and how it is read; one that was read is known by its path, and by the row id that its list gives it.

    A table that gets format version 3 gives row ids to manifests that it has already.
    """

    def __init__(self, manifest: ManifestFile, io: FileIO) -> None:
        self.manifest = manifest
        self.io = io
        self._known = manifest.manifest_path, first_row_id_of(manifest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Manifest) and self._known == other._known

    def __hash__(self) -> int:
        return hash(self._known)


@lru_cache(maxsize=CACHED_MANIFESTS)
def _listed(one: _Manifest) -> tuple[ListedFile, ...]:
    return tuple(_listed_file(entry, one.manifest) for entry in read_entries(one.manifest, one.io))


@lru_cache(maxsize=CACHED_MANIFESTS)
def _listed_deletes(one: _Manifest) -> tuple[ListedDelete, ...]:
    return tuple(listed_delete(entry.data_file) for entry in read_entries(one.manifest, one.io))


def listed_delete(file: IcebergFile) -> ListedDelete:
    """Returns what an entry of a manifest says of something that deletes rows."""
    return ListedDelete(
        path=file.file_path,
        content=file.content,
        file_format=file.file_format,
        referenced=said(file, "referenced_data_file"),
        offset=said(file, "content_offset") or 0,
        size_bytes=said(file, "content_size_in_bytes") or file.file_size_in_bytes,
        rows=file.record_count,
    )


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
        crc=(file.nan_value_counts or {}).get(DIGEST_ID),
        sequence_number=entry.sequence_number or 0,
        first_row_id=said(file, "first_row_id"),
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
        field.name: _partition_text(value, field.transform)
        for field, value in zip(spec.fields, file.partition, strict=True)
    }


def _partition_text(value: object, transform: Transform[Any, Any]) -> str | None:
    if value is None or isinstance(value, date):
        return None if value is None else value.isoformat()
    if not isinstance(transform, (DayTransform, HourTransform)):
        return str(value)
    is_day = isinstance(transform, DayTransform)
    moment = datetime.fromtimestamp(int(str(value)) * (DAY_S if is_day else HOUR_S), EPOCH.tzinfo)
    return moment.date().isoformat() if is_day else f"{moment:%Y-%m-%d %H:%M:%S}"
