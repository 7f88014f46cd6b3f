"""What a table's log says of its files and its protocol, read without delta-rs, which does not show it.

    newest whole checkpoint      one file, parts that are all there, or one of the second kind with its sidecars
    commits after it             <version>.json

From its actions come the digests of data files, a statistic that delta-rs does not know; the descriptors of deletion
vectors, by which another engine says which rows of a data file are deleted; and the protocol of a table that delta-rs
refuses to open.

    storageType    pathOrInlineDv
    u              [prefix]<UUID in Z85>     [prefix/]deletion_vector_<UUID>.bin, below the table's folder
    p              a whole address           that file
    i              the bytes in Z85          no file

Source: the Delta transaction log protocol, "Delta Log Entries", "Checkpoints", "Sidecar Files", "Deletion Vectors".
"""

from __future__ import annotations

import base64
import json
import re
import string
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from millrace.errors import WarehouseError
from millrace_pipelines.warehouse.delta.protocol import DELETION_VECTORS, TableFacts, refusal
from millrace_pipelines.warehouse.stores.store import LOG_DIRECTORY, Store
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import DIGEST

LOG_FILE = re.compile(
    r"(?P<version>\d{20})\.(?:(?P<commit>json)|checkpoint(?P<label>\.\d{10}\.(?P<parts>\d{10})|\.[0-9a-f-]{36})?"
    r"\.(?:parquet|json))"
)
SIDECARS = "_sidecars"
OF_FILES = frozenset({"add", "remove"})

Action: TypeAlias = Mapping[str, Any]
Descriptor: TypeAlias = Mapping[str, Any]
"""As an action has it, without the fields that are null."""

RELATIVE = "u"
ABSOLUTE = "p"
INLINE = "i"
ENCODED_UUID = 20
Z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
BASE85 = string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
TO_BASE85 = str.maketrans(Z85, BASE85)
TO_Z85 = str.maketrans(BASE85, Z85)


class LoggedVersion(Protocol):
    """What is asked of a version of a table whose log is read: `Snapshot`, which reads vectors that the log names."""

    @property
    def location(self) -> str:
        """Returns the table's location."""

    @property
    def root(self) -> str:
        """Returns the path of the table's folder in `filesystem`."""

    @property
    def filesystem(self) -> pafs.FileSystem:
        """Returns the file system that has the log."""

    @property
    def version(self) -> int:
        """Returns the number of the version's commit."""

    def facts(self) -> TableFacts:
        """Returns the version's protocol."""

    def file_names(self) -> list[str]:
        """Returns the names of the version's data files."""


def actions_of(table: LoggedVersion, kind: str, fields: Iterable[str]) -> Iterator[Action]:
    """Yields all actions of one kind, such as `add`, up to a version: oldest first, removed or replaced ones, too.

    Args:
        table: The version.
        kind: The kind, as Delta's protocol names it.
        fields: The fields that the caller needs; actions from checkpoints have no others.
    """
    wanted = [f"{kind}.{field}" for field in fields]
    checkpoint, commits = _log_files(table)
    for path in checkpoint:
        yield from _in_file(table.filesystem, path, kind, wanted)
        if kind in OF_FILES:
            for sidecar in _in_file(table.filesystem, path, "sidecar", ["sidecar.path"]):
                yield from _in_file(table.filesystem, _sidecar(table, sidecar["path"]), kind, wanted)
    for path in commits:
        yield from _in_file(table.filesystem, path, kind, wanted)


def _log_files(table: LoggedVersion) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the files that make up a version: those of a whole checkpoint, and the commits after it, oldest first."""
    checkpoints: dict[tuple[int, str], list[str]] = {}
    commits: dict[int, str] = {}
    parts: dict[tuple[int, str], int] = {}
    for info in table.filesystem.get_file_info(pafs.FileSelector(f"{table.root}/{LOG_DIRECTORY}")):
        match = LOG_FILE.fullmatch(info.base_name)
        if match is None or int(match["version"]) > table.version:
            continue
        version = int(match["version"])
        if match["commit"]:
            commits[version] = info.path
            continue
        key = version, match["parts"] or match["label"] or ""
        checkpoints.setdefault(key, []).append(info.path)
        parts[key] = int(match["parts"] or 1)
    whole = max((key for key, paths in checkpoints.items() if len(paths) == parts[key]), default=(-1, ""))
    after = [commits[version] for version in sorted(commits) if version > whole[0]]
    return sorted(checkpoints.get(whole, ())), after


def _in_file(filesystem: pafs.FileSystem, path: str, kind: str, columns: list[str]) -> Iterator[Action]:
    if path.endswith(".json"):
        with filesystem.open_input_file(path) as file:
            actions = [json.loads(line).get(kind) for line in file.read().splitlines() if line.strip()]
    else:
        with pq.ParquetFile(path, filesystem=filesystem) as file:
            rows = file.read(columns=columns)
        actions = rows.column(kind).to_pylist() if kind in rows.column_names else []
    yield from (action for action in actions if action and any(value is not None for value in action.values()))


def _sidecar(table: LoggedVersion, path: str) -> str:
    """Returns the path of a checkpoint's sidecar file, of which `path` may be the name alone."""
    return f"{table.root}/{LOG_DIRECTORY}/{SIDECARS}/{unquote(path).rpartition('/')[2]}"


def descriptor_of(action: Mapping[str, Any]) -> Descriptor | None:
    """Returns the deletion vector's descriptor in an add or remove action; None where the file has no vector."""
    fields = action.get("deletionVector") or {}
    return {name: value for name, value in fields.items() if value is not None} or None


def vector_file(descriptor: Descriptor, location: str) -> str | None:
    """Returns the name of the file that stores a deletion vector, if it is below the table's location; else None."""
    path = str(descriptor["pathOrInlineDv"])
    if descriptor["storageType"] == RELATIVE:
        prefix, encoded = path[:-ENCODED_UUID], path[-ENCODED_UUID:]
        name = f"deletion_vector_{uuid.UUID(bytes=base64.b85decode(encoded.translate(TO_BASE85)))}.bin"
        return f"{prefix}/{name}" if prefix else name
    if descriptor["storageType"] == ABSOLUTE:
        return unquote(path).partition(f"{location}/")[2] or None
    return None


class LoggedFile(NamedTuple):
    """A data file in the log, as its add action has it.

    Attributes:
        path: Its path, percent-encoded.
        vector: Its deletion vector; None where no row is deleted.
        size_bytes: Its size.
        modified_ms: When it was written.
        statistics: The statistics of its columns as JSON; empty where the log has none.
    """

    path: str
    vector: Descriptor | None
    size_bytes: int
    modified_ms: int
    statistics: str


def digests_of(table: LoggedVersion) -> dict[str, str]:
    """Returns the CRC-32C, as text, of the version's files by name, where the log has one."""
    names = set(table.file_names())
    adds = actions_of(table, "add", ("path", "stats"))
    added = {unquote(str(add["path"])): json.loads(add.get("stats") or "{}").get(DIGEST) for add in adds}
    return {name: digest for name, digest in added.items() if name in names and isinstance(digest, str)}


def logged_files(table: LoggedVersion, names: AbstractSet[str]) -> Mapping[str, LoggedFile]:
    """Returns what the log has of the version's files with these names.

    A path may be added again with another vector: the newest add action is the one that counts.

    Raises:
        WarehouseError: The log has no add action of one of them.
    """
    found: dict[str, LoggedFile] = {}
    for add in actions_of(table, "add", ("path", "deletionVector", "size", "modificationTime", "stats")):
        path, vector = str(add["path"]), descriptor_of(add)
        if (name := unquote(path)) in names:
            found[name] = LoggedFile(path, vector, add["size"], add["modificationTime"], add.get("stats") or "{}")
    if unknown := sorted(names - found.keys()):
        raise WarehouseError(f"{table.location}: the log does not say which rows of {', '.join(unknown)} are deleted")
    return found


def vectors_of(table: LoggedVersion, names: AbstractSet[str]) -> dict[str, Descriptor]:
    """Returns the deletion vectors of those of the version's files that have one; `names` are all of its files."""
    adds = actions_of(table, "add", ("path", "deletionVector"))
    newest = {unquote(str(add["path"])): descriptor_of(add) for add in adds}
    return {name: vector for name in names if (vector := newest.get(name)) is not None}


def files_of_versions(table: LoggedVersion, since_ms: int) -> set[str]:
    """Returns the names of files that versions since a time need, without the data files of the newest version.

    Args:
        table: The newest version.
        since_ms: The time from which on readers may still have a version.
    """
    if DELETION_VECTORS not in table.facts().reader_features:
        return set()
    return {*_of_this_version(table), *_of_removed(table, since_ms)}


def _of_this_version(table: LoggedVersion) -> Iterator[str]:
    for vector in vectors_of(table, {*table.file_names()}).values():
        yield from _vector_file_name(vector, table)


def _of_removed(table: LoggedVersion, since_ms: int) -> Iterator[str]:
    for remove in actions_of(table, "remove", ("path", "deletionTimestamp", "deletionVector")):
        if (remove.get("deletionTimestamp") or 0) > since_ms:
            yield unquote(str(remove["path"]))
            yield from _vector_file_name(descriptor_of(remove), table)


def _vector_file_name(vector: Descriptor | None, table: LoggedVersion) -> Iterator[str]:
    name = None if vector is None else vector_file(vector, table.location)
    if name is not None:
        yield name


def refused_by_log(store: Store) -> str | None:
    """Returns why a table that delta-rs can't open is refused; None where its protocol is not the reason."""
    try:
        action = next(_protocol_actions(store), None)
    except (OSError, ValueError, pa.ArrowException):
        return None
    refused = None if action is None else refusal(_facts(action), Access.READ)
    return None if refused is None else refused.message(store.location, Access.READ)


def _facts(action: Action) -> TableFacts:
    return TableFacts(
        reader_version=int(action["minReaderVersion"]),
        writer_version=int(action["minWriterVersion"]),
        reader_features=frozenset(action.get("readerFeatures") or ()),
        writer_features=frozenset(action.get("writerFeatures") or ()),
        properties={},
        schema="",
    )


def _protocol_actions(store: Store) -> Iterator[Action]:
    """Yields the log's protocol actions, newest first; a checkpoint stands for commits that are gone."""
    listed = store.filesystem.get_file_info(pafs.FileSelector(store.path(LOG_DIRECTORY)))
    names = sorted((info.base_name for info in listed if info.base_name[:20].isdecimal()), reverse=True)
    for name in names:
        if name.endswith((".json", ".parquet")):
            yield from _in_file(store.filesystem, store.path(f"{LOG_DIRECTORY}/{name}"), "protocol", ["protocol"])
