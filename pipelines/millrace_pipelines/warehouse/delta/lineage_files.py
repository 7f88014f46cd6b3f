"""The lineage of a table's commits in files of their own, which outlive the cleanup of the log.

    DIR/_lineage/<first version>-<last version>.json    {"lineage": [table's id, {version: lineage, …}], "crc32": …}

The log's commits have it first, and what they say counts. But an engine may remove commits that are older than
`delta.logRetentionDuration` and stand in a checkpoint, and the audit, the history and the erased keys need all of them.
So each commit is followed by a file, of all commits since the one that the ledger's copy knows: a crash between leaves
the file of the next commit to say it. Where there are many files, one takes their place. A damaged file counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast
from zlib import crc32

import pyarrow.fs as pafs

from millrace_pipelines.warehouse.delta.lineage import Lineage
from millrace_pipelines.warehouse.delta.store import LINEAGE_FOLDER, TableFiles

MANY_FILES = 100


def keep_lineage(store: TableFiles, table_id: str, commits: Mapping[int, Lineage]) -> None:
    """Writes the lineage of some commits durably, by their versions; raises OSError where that fails."""
    if not commits:
        return
    store.replace(_name(commits), lambda _: _content(table_id, commits))
    names = _names(store)
    if len(names) > MANY_FILES:
        everything = kept_lineage(store, table_id)
        whole = _name(everything)
        store.replace(whole, lambda _: _content(table_id, everything))
        store.remove_durably(name for name in names if name != whole)


def kept_lineage(store: TableFiles, table_id: str) -> dict[int, Lineage]:
    """Returns the lineage of a table's commits, by their versions, as far as files have it."""
    found: dict[int, Lineage] = {}
    for name in _names(store):
        found |= _commits_in(store.read(name), table_id)
    return found


def _commits_in(content: bytes | None, table_id: str) -> dict[int, Lineage]:
    try:
        said = json.loads(content or b"")
        of_table, commits = said["lineage"]
        is_whole = said["crc32"] == _checksum(said["lineage"])
    except (ValueError, KeyError, TypeError):
        return {}
    if not is_whole or of_table != table_id:
        return {}
    return {int(version): cast("Lineage", lineage) for version, lineage in commits.items()}


def _content(table_id: str, commits: Mapping[int, Lineage]) -> bytes:
    said = [table_id, {str(version): lineage for version, lineage in commits.items()}]
    return json.dumps({"lineage": said, "crc32": _checksum(said)}).encode()


def _checksum(said: object) -> int:
    return crc32(json.dumps(said).encode())


def _name(commits: Mapping[int, Lineage]) -> str:
    return f"{LINEAGE_FOLDER}/{min(commits):020d}-{max(commits):020d}.json"


def _names(store: TableFiles) -> list[str]:
    selector = pafs.FileSelector(store.path(LINEAGE_FOLDER), allow_not_found=True)
    listed = store.filesystem.get_file_info(selector)
    return sorted(f"{LINEAGE_FOLDER}/{one.base_name}" for one in listed if one.base_name.endswith(".json"))
