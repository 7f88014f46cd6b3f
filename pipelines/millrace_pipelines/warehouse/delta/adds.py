"""What the log says of the data files, as their add actions have it: delta-rs shows no statistic of its own.

    newest whole checkpoint      add.path, add.stats      <version>.checkpoint.parquet, or in parts
    commits after it             {"add": {…}}             <version>.json

Source: the Delta transaction log protocol, "Add File and Remove File", "Checkpoints".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from millrace_pipelines.warehouse.delta.data_file import DIGEST
from millrace_pipelines.warehouse.delta.snapshot import Snapshot
from millrace_pipelines.warehouse.delta.store import LOG_DIRECTORY

LOG_FILE = re.compile(r"(?P<version>\d{20})\.(?:(?P<commit>json)|checkpoint(?:\.\d{10}\.(?P<parts>\d{10}))?\.parquet)")


def digests_of(table: Snapshot) -> dict[str, str]:
    """Returns the digests of the version's files by their names, of those that have one."""
    names = set(table.file_names())
    added = {unquote(path): json.loads(statistics or "{}").get(DIGEST) for path, statistics in _added(table)}
    return {name: digest for name, digest in added.items() if name in names and isinstance(digest, str)}


def _added(table: Snapshot) -> Iterator[tuple[str, str | None]]:
    """Yields path and statistics of the files that the log adds, from the newest checkpoint on, oldest first."""
    checkpoints: dict[int, list[str]] = {}
    commits: dict[int, str] = {}
    parts: dict[int, int] = {}
    listed = table.filesystem.get_file_info(pafs.FileSelector(f"{table.root}/{LOG_DIRECTORY}"))
    for info in listed:
        match = LOG_FILE.fullmatch(info.base_name)
        if match is None or int(match["version"]) > table.version:
            continue
        version = int(match["version"])
        if match["commit"]:
            commits[version] = info.path
        else:
            checkpoints.setdefault(version, []).append(info.path)
            parts[version] = int(match["parts"] or 1)
    whole = max((version for version, paths in checkpoints.items() if len(paths) == parts[version]), default=-1)
    for path in sorted(checkpoints.get(whole, ())):
        yield from _of_checkpoint(table, path)
    for version in range(whole + 1, table.version + 1):
        yield from _of_commit(table, commits.get(version))


def _of_checkpoint(table: Snapshot, path: str) -> Iterator[tuple[str, str | None]]:
    with pq.ParquetFile(path, filesystem=table.filesystem) as file:
        adds = file.read(columns=["add.path", "add.stats"]).column("add")
    yield from _fields(adds.to_pylist())


def _of_commit(table: Snapshot, path: str | None) -> Iterator[tuple[str, str | None]]:
    if path is not None:
        with table.filesystem.open_input_file(path) as file:
            yield from _fields(json.loads(line).get("add") for line in file.read().splitlines() if line.strip())


def _fields(adds: Iterable[Mapping[str, Any] | None]) -> Iterator[tuple[str, str | None]]:
    for add in adds:
        if add is not None and add.get("path") is not None:
            yield str(add["path"]), add.get("stats")
