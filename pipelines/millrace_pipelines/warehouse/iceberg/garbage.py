"""What below an Iceberg table's location nothing needs any more, as vacuum asks: snapshots first, then files.

A version counts until the next one was made. One that ended before the retention began expires, but for:

    main                            its newest snapshot, and as many as the table's properties say
    branches and tags of others     their snapshots; all that a branch can go back to
    the ledger                      the snapshot that says it, and those of others after it, which lead to it

What those that stay lead to is needed: their lists, manifests, data and deletion files, statistics, and the metadata
files that the newest one names. So is the same of the version that was current when the retention began: a commit may
have expired it early (`table`), and a reader may have it still. Everything else is garbage once it is old enough:

    written by Millrace, a data file        the retention; its name tells the operation, whose lease tells if it runs
    written by Millrace, a vector           the retention, and no operation runs
    any other file                          the retention, but at least LEAST_HOURS: its writer may be just at work

Files are compared by their paths without scheme and host, as engines spell these differently (`s3a://`, `s3://`), and
without percent signs, with which a store may list what a manifest names without them. Left alone are files and folders
whose names begin with `_` or `.`, other tables below the location, `version-hint.text`, and everything where the
table's `gc.enabled` is false.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow.fs as pafs
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from millrace_pipelines.warehouse.iceberg.ledger_state import TRANSACTIONS, ancestors, summary_of
from millrace_pipelines.warehouse.iceberg.manifest_files import read_entries, read_list
from millrace_pipelines.warehouse.iceberg.manifests import manifests_of
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.files import is_vector

logger = logging.getLogger(__name__)

HOUR_MS = 60 * 60 * 1000
LEAST_HOURS = 24
METADATA_FOLDER = "metadata"
METADATA_SUFFIX = ".metadata.json"
VERSION_HINT = f"{METADATA_FOLDER}/version-hint.text"
MANIFEST_LIST = re.compile(rf"{METADATA_FOLDER}/snap-[^/]+\.avro")
Found = TypeVar("Found")
OURS = re.compile(r"(?:.*/)?part-[^-/]+-\d{5}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet")


class StoredFile(NamedTuple):
    """A file below a table's location, and when it was written; None where the store does not say."""

    name: str
    written_ms: int | None


def is_collected(metadata: TableMetadata) -> bool:
    """Returns whether a table lets snapshots and files be removed."""
    return metadata.properties.get("gc.enabled", "true").lower() != "false"


def ended_snapshots(metadata: TableMetadata, since_ms: int, *, is_fenced: bool) -> list[int]:
    """Returns the snapshots that nothing keeps and that ended before a time.

    Args:
        metadata: The table's metadata.
        since_ms: The time.
        is_fenced: Whether an empty commit comes first, which says the ledger.
    """
    if not is_collected(metadata):
        return []
    kept, ends = _kept(metadata, is_fenced=is_fenced), _ends(metadata)
    return [
        one.snapshot_id
        for one in metadata.snapshots
        if one.snapshot_id not in kept and ends.get(one.snapshot_id, one.timestamp_ms) <= since_ms
    ]


def _kept(metadata: TableMetadata, *, is_fenced: bool) -> set[int]:
    line = ancestors(metadata)
    said = (number for number, one in enumerate(line, start=1) if TRANSACTIONS in summary_of(one))
    ledger = 0 if is_fenced else next(said, 0)
    kept = {one.snapshot_id for one in line[: max(ledger, _least(metadata))]}
    for name, ref in metadata.refs.items():
        kept.add(ref.snapshot_id)
        if ref.snapshot_ref_type is SnapshotRefType.BRANCH and name != MAIN_BRANCH:
            kept |= {one.snapshot_id for one in ancestors(metadata, ref.snapshot_id)}
    return kept


def _least(metadata: TableMetadata) -> int:
    main = metadata.refs.get(MAIN_BRANCH)
    said = None if main is None else main.min_snapshots_to_keep
    return max(1, int(said or metadata.properties.get("history.expire.min-snapshots-to-keep", "1")))


def _ends(metadata: TableMetadata) -> dict[int, int]:
    """Returns when snapshots were `main` for the last time, as far as the log of `main` tells."""
    log = metadata.snapshot_log
    return {one.snapshot_id: following.timestamp_ms for one, following in pairwise(log)}


def without_snapshots(metadata: TableMetadata, expired: Iterable[int]) -> TableMetadata:
    """Returns metadata as it would be without some snapshots."""
    gone = set(expired)
    return metadata.model_copy(update={"snapshots": [one for one in metadata.snapshots if one.snapshot_id not in gone]})


def stored_files(store: Store) -> list[StoredFile]:
    """Returns all files below a table's location."""
    selector = pafs.FileSelector(store.root, recursive=True, allow_not_found=True)
    return [
        StoredFile(
            info.path.removeprefix(f"{store.root}/"), None if info.mtime_ns is None else info.mtime_ns // 1_000_000
        )
        for info in store.filesystem.get_file_info(selector)
        if info.type is pafs.FileType.File
    ]


def needed_paths(metadata: TableMetadata, location: str, io: FileIO) -> Iterator[str]:
    """Yields the paths of all files to which metadata leads, some of them twice; `location` is that of its own file."""
    yield location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        yield from () if snapshot.manifest_list is None else (snapshot.manifest_list,)
        manifests |= {one.manifest_path: one for one in manifests_of(snapshot, io)}
    for manifest in manifests.values():
        yield from _paths_in(manifest, io)


def paths_in_list(path: str, io: FileIO) -> Iterator[str]:
    """Yields the paths of a list of manifests and of all files to which it leads, as far as they are there."""
    yield path
    for manifest in _if_there(path, lambda: read_list(path, io)):
        yield from _if_there(manifest.manifest_path, partial(_paths_in, manifest, io))


def _paths_in(manifest: ManifestFile, io: FileIO) -> Iterator[str]:
    yield manifest.manifest_path
    yield from (entry.data_file.file_path for entry in read_entries(manifest, io))


def _if_there(path: str, read: Callable[[], Iterable[Found]]) -> list[Found]:
    """Returns what is read from a file; nothing where it is gone, or was left half written by a crash."""
    try:
        return list(read())
    except (FileNotFoundError, ValueError) as error:
        logger.info("%s keeps no file: %s", path, error)
        return []


def list_before(files: Iterable[StoredFile], since_ms: int) -> str | None:
    """Returns the name of the newest list of manifests that was written before a time; None for none."""
    lists = [
        (one.written_ms, one.name)
        for one in files
        if MANIFEST_LIST.fullmatch(one.name) and one.written_ms is not None and one.written_ms <= since_ms
    ]
    return max(lists, default=(0, None))[1]


def unneeded(files: Sequence[StoredFile], needed: set[str], *, now_ms: int, retention_hours: int) -> list[str]:
    """Returns the names of files that are not needed, and old enough to go."""
    plain = {unquote(name) for name in needed}
    others = tuple(
        f"{folder}/"
        for folder in {one.name.rpartition(f"/{METADATA_FOLDER}/")[0] for one in files if _is_of_other_table(one.name)}
    )
    return sorted(
        one.name
        for one in files
        if unquote(one.name) not in plain
        and one.name != VERSION_HINT
        and not any(part.startswith(("_", ".")) for part in one.name.split("/"))
        and not one.name.startswith(others)
        and one.written_ms is not None
        and one.written_ms <= now_ms - _least_hours(one.name, retention_hours) * HOUR_MS
    )


def _is_of_other_table(name: str) -> bool:
    """Returns whether a file is the metadata of a table whose folder is below this one's."""
    return f"/{METADATA_FOLDER}/" in name and name.endswith(METADATA_SUFFIX)


def _least_hours(name: str, retention_hours: int) -> int:
    is_ours = OURS.fullmatch(name) is not None or is_vector(name)
    return retention_hours if is_ours else max(retention_hours, LEAST_HOURS)


def names_below(paths: Iterable[str], location: str) -> set[str]:
    """Returns the names of those files that are below a location, whatever the scheme and the host in their paths."""
    root = f"{_place(location)}/"
    places = (_place(path) for path in paths)
    return {place.removeprefix(root) for place in places if place.startswith(root)}


def _place(path: str) -> str:
    _, is_address, rest = path.partition("://")
    place = rest.partition("/")[2] if is_address else path.removeprefix("file:")
    return place.strip("/")
