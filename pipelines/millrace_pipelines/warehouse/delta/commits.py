"""The commits in a table's log: read one by one, written where delta-rs can't, and removed where a power cut tore them.

    _delta_log/<20-digit version>.json    JSON lines with an action each: commitInfo, add, remove, txn, …

Read one by one, the newest cost the same however long the history is.

A commit is written here where files with deletion vectors are removed, or get some: delta-rs's actions have none, and
to Delta a file is its path and its vector together, so that a removal which lacks the vector removes nothing. The
commit's file gets its name only where no other has it, as delta-rs does it, too: a commit is made of exactly the
version before it, or not at all. A bucket has no such door for Millrace; a table there is refused (`delta.protocol`).

delta-rs writes a commit under another name and links it to its name without a sync; the sync comes after. A power
cut between the two may leave the newest commit, or a checkpoint, with its name and without its bytes:

    empty                    reads as a commit of nothing: the load is not in the table, the next one goes on
    torn, or full of zeros   the table can't be read; no load has been told that it was committed: it is removed
    torn checkpoint          the table can't be read from it; every commit is still there: it is removed

Nothing was built on such a commit, for every process that loads a table to write to it syncs its newest commit first.

The log's own `txn` actions are the ledger: what a commit builds on is compared with them. But another engine's
checkpoint may drop them (`delta.setTransactionRetentionDuration`), and then a load would begin again at the start. So
each commit is followed by a second copy of them, in a file that other engines leave alone:

    DIR/_ledger.json    the table's id, where the file lies, a version, and the transactions of that version

It may lag: the commits after its version are read from the log. What the log has lost is taken from here, and the next
commit writes it to the log again. The file also tells what the log can't: that the folder is a copy, or that the table
was set back to a version from before its offsets moved, for RESTORE takes rows back and leaves transactions as they
are. A damaged file counts as none, and one is made from the log where there is none.
Source: the Delta transaction log protocol, "Delta Log Entries", "Add File and Remove File".
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from millrace.errors import WarehouseError
from millrace.fs import FileSystem, read_file
from millrace.version import __version__
from millrace_pipelines.warehouse.delta.log_actions import LoggedFile, actions_of
from millrace_pipelines.warehouse.delta.snapshot import Snapshot
from millrace_pipelines.warehouse.errors import LedgerError, StaleLedgerError
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.refusals import one_line, refusal
from millrace_pipelines.warehouse.stores.store import LOG_DIRECTORY, FileIdentity, Store, checked_json, said_in
from millrace_pipelines.warehouse.table.files import MarkedFile
from millrace_pipelines.warehouse.table.lineage import LINEAGE_KEY, parse_lineage
from millrace_pipelines.warehouse.table.table import Commit

COMMIT_SUFFIX = ".json"
RESTORE = "RESTORE"
LAST_CHECKPOINT = "_last_checkpoint"
CHECKPOINT_SUFFIX = ".checkpoint.parquet"


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
    where = f"{table.location}: the commit of version {version}"
    try:
        with table.filesystem.open_input_file(_path(table, version)) as file:
            actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise WarehouseError(f"{where} can't be read: {error}") from error
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    added = _of_kind(actions, "add")
    return Commit(
        version=version,
        time_ms=int(info.get("timestamp", 0)),
        operation=str(info.get("operation", "")),
        lineage=parse_lineage(info[LINEAGE_KEY], f"{LINEAGE_KEY} of {where}") if LINEAGE_KEY in info else {},
        transactions={str(txn["appId"]): int(txn["version"]) for txn in _of_kind(actions, "txn")},
        restored_to=_restored_to(info),
        file_names=tuple(unquote(str(file["path"])) for file in added),
        bytes=sum(int(file["size"]) for file in added),
    )


def is_newest(location: str, version: int, fs: FileSystem) -> bool:
    """Returns whether `version` is the newest commit in the log; looks only at file names and loads no table."""
    store = store_at(location, fs)
    return store.size_bytes(commit_name(version)) is not None and store.size_bytes(commit_name(version + 1)) is None


def _first_kept(table: Snapshot, version: int) -> int:
    """Returns the first version from `version` on whose commit the log has; without any, the one after the newest."""
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
    return f"{table.root}/{commit_name(version)}"


def commit_name(version: int) -> str:
    """Returns the name of a version's commit file."""
    return f"{LOG_DIRECTORY}/{version:020d}{COMMIT_SUFFIX}"


@contextmanager
def commit_errors(location: str) -> Iterator[None]:
    """Turns delta-rs's errors in a commit into StaleLedgerError where it was not made, into WarehouseError else."""
    try:
        yield
    except CommitFailedError as error:
        raise StaleLedgerError(f"{location}: another load committed first: {error}") from error
    except (DeltaError, OSError) as error:
        if (denied := refusal(location, str(error))) is not None:
            raise denied from error
        raise WarehouseError(f"{location}: the commit may or may not be made: {one_line(str(error))}") from error


def put_commit(
    store: Store,
    version: int,
    actions: Iterable[AddAction | RemoveAction],
    *,
    logged: Mapping[str, LoggedFile],
    marked: Mapping[str, MarkedFile],
    partition_by: Sequence[str],
    properties: CommitProperties,
    time_ms: int,
) -> None:
    """Writes the commit file of a table's next version, for a table in a folder.

    delta-rs can't write it where removed files have deletion vectors, or get some. `logged` has the removed files by
    name; those in `marked` are removed as they were, and added with another vector.

    Raises:
        StaleLedgerError: Another commit made this version.
    """
    info = {
        "timestamp": time_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(list(partition_by))},
        "engineInfo": f"millrace:{__version__}",
        **(properties.custom_metadata or {}),
    }
    lines: list[Mapping[str, Any]] = [{"commitInfo": info}]
    lines += (
        {"txn": {"appId": txn.app_id, "version": txn.version, "lastUpdated": txn.last_updated}}
        for txn in properties.app_transactions or ()
    )
    lines += (
        {"add": _add(action)} if isinstance(action, AddAction) else {"remove": _remove(action, logged[action.path])}
        for action in actions
    )
    lines += (
        {"add": _add_marked(action, logged[action.path], marked[action.path])}
        for action in actions
        if isinstance(action, RemoveAction) and action.path in marked
    )
    try:
        store.create(commit_name(version), "".join(json.dumps(line) + "\n" for line in lines).encode())
    except FileExistsError:
        raise StaleLedgerError(f"{store.location}: another load committed first: version {version} is there") from None


def _add(action: AddAction) -> Mapping[str, Any]:
    return {
        "path": quote(action.path, safe="/="),
        "partitionValues": dict(action.partition_values),
        "size": action.size,
        "modificationTime": action.modification_time,
        "dataChange": action.data_change,
        "stats": action.stats,
    }


def _add_marked(action: RemoveAction, logged: LoggedFile, marked: MarkedFile) -> Mapping[str, Any]:
    """Returns the add action of a file with a vector; its bounds stay, but may be those of deleted rows."""
    statistics = {**json.loads(logged.statistics), "numRecords": marked.rows, "tightBounds": False}
    return {
        "path": logged.path,
        "partitionValues": dict(action.partition_values or {}),
        "size": logged.size_bytes,
        "modificationTime": logged.modified_ms,
        "dataChange": action.data_change,
        "stats": json.dumps(statistics),
        "deletionVector": marked.vector,
    }


def _remove(action: RemoveAction, logged: LoggedFile) -> Mapping[str, Any]:
    said = {
        "path": logged.path,
        "deletionTimestamp": action.deletion_timestamp,
        "dataChange": action.data_change,
        "extendedFileMetadata": action.size is not None,
        "partitionValues": action.partition_values,
        "size": action.size,
        "deletionVector": logged.vector,
    }
    return {name: value for name, value in said.items() if value is not None}


def remove_torn_end(directory: str, fs: FileSystem) -> list[str]:
    """Removes the newest commit and the newest checkpoint of a local table if they are torn; returns their names."""
    log = os.path.join(directory, LOG_DIRECTORY)
    names = fs.listdir(log) if fs.exists(log) else []
    commits = [name for name in names if name.endswith(COMMIT_SUFFIX)]
    checkpoints = [name for name in names if name.endswith(CHECKPOINT_SUFFIX)]
    torn = [name for name in commits[-1:] if _is_torn_commit(read_file(fs, os.path.join(log, name)))]
    if checkpoints and _is_torn_checkpoint(os.path.join(log, checkpoints[-1])):
        torn += [checkpoints[-1], *(name for name in names if name == LAST_CHECKPOINT)]
    elif LAST_CHECKPOINT in names and not _is_json(read_file(fs, os.path.join(log, LAST_CHECKPOINT))):
        torn.append(LAST_CHECKPOINT)
    for name in torn:
        fs.unlink(os.path.join(log, name))
    if torn:
        fs.fsync_dir(log)
    return torn


def _is_torn_commit(content: bytes) -> bool:
    return not all(_is_json(line) for line in content.splitlines() if line)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _is_torn_checkpoint(path: str) -> bool:
    try:
        pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError):
        return True
    return False


LEDGER_FILE = "_ledger.json"
SAID = "ledger"
OWN_APP_IDS = "millrace/"


class LedgerCopy(NamedTuple):
    """The second copy of a table's ledger: its transactions at one version; `identity` is where the copy's file lay."""

    table_id: str
    version: int
    transactions: Mapping[str, int]
    identity: FileIdentity

    def content(self, identity: FileIdentity) -> bytes:
        """Returns the JSON content of the copy's file; `identity`, where the file lies, is a part of it."""
        said = [self.table_id, self.version, dict(self.transactions), *identity]
        return checked_json(SAID, said, indent=1)


def read_copy(store: Store) -> LedgerCopy | None:
    """Returns the ledger's second copy from a table's folder; None where it is missing or damaged."""
    match said_in(store.read(LEDGER_FILE), SAID):
        case [table_id, version, transactions, path, inode]:
            return LedgerCopy(table_id, version, transactions, FileIdentity(path, inode))
    return None


def keep_copy(table: Snapshot, store: Store) -> None:
    """Writes the ledger's second copy for this version, unless it is as new; raises OSError where that fails."""
    copy = read_copy(store)
    if copy is None or copy.table_id != table.id:
        copy = LedgerCopy(table.id, table.version, _transactions_in_log(table), FileIdentity("", None))
    elif copy.version < table.version:
        copy = copy._replace(version=table.version, transactions=transactions_at(copy, table))
    else:
        return
    store.replace(LEDGER_FILE, copy.content)


def transactions_at(copy: LedgerCopy, table: Snapshot) -> dict[str, int]:
    """Returns the transactions of a copy, moved on by the commits after it up to the table's version.

    Raises:
        LedgerError: A commit between the two is gone from the log, and so is a transaction that it may have set.
    """
    moved: dict[str, int] = dict(copy.transactions)
    for version in range(copy.version + 1, table.version + 1):
        commit = read_commit(table, version)
        if commit is None:
            return _without_commits(copy, table, version)
        moved |= _own(commit.transactions)
    return moved


def check_copy(copy: LedgerCopy, table: Snapshot, store: Store) -> None:
    """Checks that a table's rows and log are those for which the ledger's second copy was written.

    Raises:
        LedgerError: They are another table's, were set back or restored to an earlier version, or the folder is a copy.
    """
    path = store.path(LEDGER_FILE)
    if copy.table_id != table.id:
        raise LedgerError(f"{path} is of another table, {copy.table_id}, not of {table.id}: the table was replaced, or "
                          "the file was copied here; load into another table")  # fmt: skip
    if copy.version > table.version:
        raise LedgerError(f"{table.location} is at version {table.version}, but was at {copy.version}: its log was set "
                          "back; put back the rest of it or, where it is a backup that was made whole, remove "
                          f"{path}")  # fmt: skip
    if not copy.identity.is_same_file(store.identity(LEDGER_FILE)):
        raise LedgerError(
            f"{table.location} is a copy of {copy.identity.path}, perhaps one made while that was written to; load "
            f"into another table or, where nothing wrote to it meanwhile, remove {path}, and the copy is a table "
            "of its own"
        )
    _check_moved(copy, table)
    _check_restored(copy, table)


def _check_moved(copy: LedgerCopy, table: Snapshot) -> None:
    for app_id, version in transactions_at(copy, table).items():
        if (actual := table.transaction_in_log(app_id)) not in (version, None):
            raise LedgerError(f"{table.location}: the log says {actual} of {app_id}, where Millrace's newest commit "
                              f"set {version}; load into another table")  # fmt: skip


def _check_restored(copy: LedgerCopy, table: Snapshot) -> None:
    """Raises LedgerError where the table was restored to a version from before the newest change of its offsets."""
    commits = [commit for commit in _commits_after(copy, table) if commit is not None]
    moved = max((commit.version for commit in commits if _own(commit.transactions)), default=copy.version)
    rows_of = table.version
    for commit in reversed(commits):
        if commit.operation == RESTORE and commit.version <= rows_of:
            rows_of = -1 if commit.restored_to is None else commit.restored_to
            if rows_of < moved:
                raise LedgerError(
                    f"{table.location} was restored to {_shown(rows_of)} by the commit {commit.version}, but offsets "
                    f"were loaded up to version {moved}: its rows are older than its ledger. `RESTORE TABLE … TO "
                    f"VERSION AS OF {max(moved, commit.version - 1)}` takes that back; or load into another table"
                )


def _shown(version: int) -> str:
    return "a time" if version < 0 else f"version {version}"


def _commits_after(copy: LedgerCopy, table: Snapshot) -> Iterator[Commit | None]:
    return (read_commit(table, version) for version in range(copy.version + 1, table.version + 1))


def _without_commits(copy: LedgerCopy, table: Snapshot, gone: int) -> dict[str, int]:
    """Returns the versions that the log itself has of the copy's transactions, since the commit `gone` is lost.

    Raises LedgerError where the log has lost one of these transactions, too.
    """
    said = {app_id: table.transaction_in_log(app_id) for app_id in copy.transactions}
    if lost := [app_id for app_id, version in said.items() if version is None]:
        raise LedgerError(f"{table.location}: the log has lost {lost[0]}, and with it which offsets are loaded; the "
                          f"copy of version {copy.version} does not help, for the commit {gone} is gone from the log; "
                          "load into another table")  # fmt: skip
    return {app_id: version for app_id, version in said.items() if version is not None}


def _transactions_in_log(table: Snapshot) -> dict[str, int]:
    """Returns Millrace's transactions in the log, from its checkpoint and the commits after it."""
    said = actions_of(table, "txn", ("appId", "version"))
    return _own({str(txn["appId"]): int(txn["version"]) for txn in said})


def _own(transactions: Mapping[str, int]) -> dict[str, int]:
    return {app_id: version for app_id, version in transactions.items() if app_id.startswith(OWN_APP_IDS)}
