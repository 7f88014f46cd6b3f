"""The actions of a table's log, read without delta-rs, which shows no statistic of its own and no deletion vector.

    newest whole checkpoint      one file, parts that are all there, or one of the second kind with its sidecars
    commits after it             <version>.json

Source: the Delta transaction log protocol, "Delta Log Entries", "Checkpoints", "Sidecar Files".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from millrace_pipelines.warehouse.delta.snapshot import Snapshot
from millrace_pipelines.warehouse.delta.store import LOG_DIRECTORY

LOG_FILE = re.compile(
    r"(?P<version>\d{20})\.(?:(?P<commit>json)|checkpoint(?P<label>\.\d{10}\.(?P<parts>\d{10})|\.[0-9a-f-]{36})?"
    r"\.(?:parquet|json))"
)
SIDECARS = "_sidecars"
OF_FILES = frozenset({"add", "remove"})

Action: TypeAlias = Mapping[str, Any]


class _LogFiles(NamedTuple):
    """The paths that tell a version: those of a whole checkpoint, and those of the commits after it, oldest first."""

    checkpoint: Sequence[str]
    commits: Sequence[str]


def actions_of(table: Snapshot, kind: str, fields: Iterable[str]) -> Iterator[Action]:
    """Yields the actions of one kind, such as `add`, up to a table's version: the oldest first, not reconciled.

    Args:
        table: The version.
        kind: As the protocol names it.
        fields: What is asked of an action; those of checkpoints have nothing else.
    """
    wanted = [f"{kind}.{field}" for field in fields]
    log = _log_files(table)
    for path in log.checkpoint:
        yield from _in_file(table, path, kind, wanted)
        if kind in OF_FILES:
            for sidecar in _in_file(table, path, "sidecar", ["sidecar.path"]):
                yield from _in_file(table, _sidecar(table, sidecar["path"]), kind, wanted)
    for path in log.commits:
        yield from _in_file(table, path, kind, wanted)


def _log_files(table: Snapshot) -> _LogFiles:
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
        place = version, match["parts"] or match["label"] or ""
        checkpoints.setdefault(place, []).append(info.path)
        parts[place] = int(match["parts"] or 1)
    whole = max((place for place, paths in checkpoints.items() if len(paths) == parts[place]), default=(-1, ""))
    after = [commits[version] for version in sorted(commits) if version > whole[0]]
    return _LogFiles(sorted(checkpoints.get(whole, ())), after)


def _in_file(table: Snapshot, path: str, kind: str, columns: list[str]) -> Iterator[Action]:
    if path.endswith(".json"):
        with table.filesystem.open_input_file(path) as file:
            actions = [json.loads(line).get(kind) for line in file.read().splitlines() if line.strip()]
    else:
        with pq.ParquetFile(path, filesystem=table.filesystem) as file:
            rows = file.read(columns=columns)
        actions = rows.column(kind).to_pylist() if kind in rows.column_names else []
    yield from (action for action in actions if action and any(value is not None for value in action.values()))


def _sidecar(table: Snapshot, path: str) -> str:
    """Returns where a sidecar is, whether its checkpoint has its name alone or a path before that."""
    return f"{table.root}/{LOG_DIRECTORY}/{SIDECARS}/{unquote(path).rpartition('/')[2]}"
