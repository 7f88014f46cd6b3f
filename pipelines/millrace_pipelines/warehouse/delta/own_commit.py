"""A commit that Millrace writes itself, where files with deletion vectors are removed: delta-rs's removals have none.

    {"commitInfo": …}   {"txn": …}   {"remove": {"path": …, "deletionVector": …}}   {"add": …}

To Delta a file is its path and its vector together, so that a removal which lacks the vector removes nothing. The
commit's file gets its name only where no other has it, as delta-rs does it, too: a commit is made of exactly the
version before it, or not at all. A bucket has no such door for Millrace; a table there is refused (`delta.protocol`).

Source: the Delta transaction log protocol, "Add File and Remove File", "Commit Provenance Information".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from deltalake import CommitProperties
from deltalake.transaction import AddAction, RemoveAction

from millrace.version import __version__
from millrace_pipelines.warehouse.delta.adds import LoggedFile
from millrace_pipelines.warehouse.delta.store import LOG_DIRECTORY, TableFiles
from millrace_pipelines.warehouse.errors import StaleLedgerError


def put_commit(
    store: TableFiles,
    version: int,
    actions: Iterable[AddAction | RemoveAction],
    *,
    logged: Mapping[str, LoggedFile],
    partition_by: Sequence[str],
    properties: CommitProperties,
    time_ms: int,
) -> None:
    """Makes a version of a table in a folder; what it takes is what delta-rs takes for such a commit.

    Args:
        store: The table's files.
        version: The version to make.
        actions: The files to add and remove.
        logged: How the log names the files to remove.
        partition_by: The table's partition columns.
        properties: What the commit says of itself, and its application transactions.
        time_ms: The time.

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
    name = f"{LOG_DIRECTORY}/{version:020d}.json"
    try:
        store.create(name, "".join(json.dumps(line) + "\n" for line in lines).encode())
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
