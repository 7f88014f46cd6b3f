"""The commits in a table's log, read one by one, so that the newest cost the same however long the history is.

    _delta_log/<20-digit version>.json    JSON lines with an action each: commitInfo, add, remove, txn, …

Source: the Delta transaction log protocol, "Delta Log Entries".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.fs as pafs

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.lineage import LINEAGE_KEY, Lineage, parse_lineage
from millrace_pipelines.warehouse.delta.snapshot import Snapshot
from millrace_pipelines.warehouse.delta.store import LOG_DIRECTORY, store_at

COMMIT_SUFFIX = ".json"
RESTORE = "RESTORE"


class Commit(NamedTuple):
    """One commit.

    Attributes:
        version: The version of the table that it made.
        time_ms: When it was written, 0 where it does not say so.
        operation: What Delta calls it, such as `WRITE`; empty where it does not say so.
        lineage: What it says of itself; empty where another program made it.
        transactions: The versions of application transactions that it set, by application id.
        restored_to: The version to which it set the table back; None for other operations, and for one by time.
        file_names: The data files that it added.
        bytes: Their size.
    """

    version: int
    time_ms: int
    operation: str
    lineage: Lineage
    transactions: Mapping[str, int]
    restored_to: int | None
    file_names: tuple[str, ...]
    bytes: int


def commits_after(table: Snapshot, version: int, limit: int) -> list[Commit]:
    """Returns the commits after a version up to the table's own, oldest first, at most `limit` of them.

    Commits whose files were removed from the log, because a checkpoint stands for them, are left out.

    Raises:
        WarehouseError: A commit can't be read.
    """
    first = version + 1
    if first <= table.version and not _is_kept(table, first):
        first = _first_kept(table, first)
    read = (read_commit(table, one) for one in range(first, min(first + limit, table.version + 1)))
    return [commit for commit in takewhile(lambda commit: commit is not None, read) if commit is not None]


def read_commit(table: Snapshot, version: int) -> Commit | None:
    """Reads the commit that made a version; returns None where the log has its file no longer.

    Raises:
        WarehouseError: The commit can't be read.
    """
    place = f"{table.location}: the commit of version {version}"
    try:
        with table.filesystem.open_input_file(_path(table, version)) as file:
            actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise WarehouseError(f"{place} can't be read: {error}") from error
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    added = _of_kind(actions, "add")
    return Commit(
        version=version,
        time_ms=int(info.get("timestamp", 0)),
        operation=str(info.get("operation", "")),
        lineage=parse_lineage(info[LINEAGE_KEY], f"{LINEAGE_KEY} of {place}") if LINEAGE_KEY in info else {},
        transactions={str(txn["appId"]): int(txn["version"]) for txn in _of_kind(actions, "txn")},
        restored_to=_restored_to(info),
        file_names=tuple(unquote(str(file["path"])) for file in added),
        bytes=sum(int(file["size"]) for file in added),
    )


def is_newest(location: str, version: int, fs: FileSystem) -> bool:
    """Returns whether the log has the commit of a version and none of the next one; it loads no table for that."""
    store = store_at(location, fs)
    return store.size_bytes(_name(version)) is not None and store.size_bytes(_name(version + 1)) is None


def _first_kept(table: Snapshot, version: int) -> int:
    """Returns the first version from this one on whose commit the log still has; the one after the table's for none."""
    listed = table.filesystem.get_file_info(pafs.FileSelector(f"{table.root}/{LOG_DIRECTORY}"))
    stems = [info.base_name.removesuffix(COMMIT_SUFFIX) for info in listed if info.base_name.endswith(COMMIT_SUFFIX)]
    kept = [int(stem) for stem in stems if stem.isdecimal() and int(stem) >= version]
    return min(kept, default=table.version + 1)


def _restored_to(info: Mapping[str, Any]) -> int | None:
    version = (info.get("operationParameters") or {}).get("version")
    return int(version) if info.get("operation") == RESTORE and version is not None else None


def _of_kind(actions: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [action[kind] for action in actions if kind in action]


def _is_kept(table: Snapshot, version: int) -> bool:
    [info] = table.filesystem.get_file_info([_path(table, version)])
    return info.type is pafs.FileType.File


def _path(table: Snapshot, version: int) -> str:
    return f"{table.root}/{_name(version)}"


def _name(version: int) -> str:
    return f"{LOG_DIRECTORY}/{version:020d}{COMMIT_SUFFIX}"
