"""Commits that no run of Dagster reported, as materializations: loads by the command line, continuous loads, and so on.

A table's own history says what was committed, and Dagster's event log which of it is known. A cursor says up to which
version each table was looked at, so that a look costs no more than what is new:

    {"/srv/warehouse/flights": ["<the table's id>", 17], …}

Where the cursor is lost, or is no cursor, a table is looked at from its first version on, and what the event log knows
is passed over. A table that was deleted and created again has another id, and is looked at from its first version too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

import dagster as dg

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.defs.table_metadata import COMMITTED_VERSION, TABLE_ID, commit_metadata, table_metadata
from millrace_pipelines.warehouse.dead_letters import REPLAY_KIND
from millrace_pipelines.warehouse.delta.commits import is_newest
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.keys.removal import ERASE
from millrace_pipelines.warehouse.load.history import COMMITS_AT_ONCE, LOAD, RELOAD, TableCommit, commits_since

REPORTED_KINDS = frozenset({LOAD, RELOAD, REPLAY_KIND, ERASE})  # others leave the rows as they are
EVENTS_AT_ONCE = 500
BEFORE_THE_FIRST = -1
RECORDS_AT_ONCE = 1000
CLOCK_DIFFERENCE_S = 300.0


class Position(NamedTuple):
    """The id of the table that was looked at, and its version up to which commits are reported."""

    table_id: str
    version: int


class TableAsset(NamedTuple):
    """A table, or a table of dead letters, and the asset that stands for it.

    Attributes:
        location: The table's location.
        asset_key: The asset.
        topic: The asset of the table's topic.
    """

    location: str
    asset_key: dg.AssetKey
    topic: dg.AssetKey | None = None


class InstanceRuns:
    """Asks a Dagster instance for runs, and for the commits that materializations have reported."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def is_running(self, run_id: str) -> bool:
        """Returns whether a run has not ended yet; False for a run that the instance does not know."""
        run = self._instance.get_run_by_id(run_id)
        return run is not None and not run.is_finished

    def known_versions(self, asset: TableAsset, table_id: str, after_ms: int) -> frozenset[int]:
        """Returns the versions of a table that materializations since `after_ms` (ms since 1970) have reported.

        The clocks of the process that committed and of the instance may differ by CLOCK_DIFFERENCE_S.
        """
        wanted = dg.AssetRecordsFilter(
            asset.asset_key,
            after_timestamp=after_ms / 1000 - CLOCK_DIFFERENCE_S,
        )
        known: set[int] = set()
        cursor: str | None = None
        while True:
            found = self._instance.fetch_materializations(wanted, limit=RECORDS_AT_ONCE, cursor=cursor)
            known |= {version for record in found.records if (version := _version(record, table_id)) is not None}
            if not found.has_more:
                return frozenset(known)
            cursor = found.cursor


class Look(NamedTuple):
    """The result of looking at tables: events to report, positions for the next tick, errors by unreadable table."""

    events: list[dg.AssetMaterialization]
    positions: dict[str, Position]
    damaged: dict[str, str]


def look(runs: InstanceRuns, assets: Iterable[TableAsset], positions: Mapping[str, Position], fs: FileSystem) -> Look:
    """Looks at tables in their order until there are EVENTS_AT_ONCE events; the rest is left to the next look.

    A table that is not there, or can't be read, keeps its position; positions of tables not in `assets` are dropped.
    """
    assets = list(assets)
    locations = {asset.location for asset in assets}
    seen = Look([], {location: position for location, position in positions.items() if location in locations}, {})
    for asset in assets:
        if len(seen.events) >= EVENTS_AT_ONCE:
            break
        try:
            events, position = _look_at(runs, asset, positions.get(asset.location), fs)
        except TableNotFoundError:
            continue
        except WarehouseError as error:
            seen.damaged[asset.location] = str(error)
            continue
        seen.events.extend(events)
        seen.positions[asset.location] = position
    return seen


def _look_at(
    runs: InstanceRuns, asset: TableAsset, position: Position | None, fs: FileSystem
) -> tuple[list[dg.AssetMaterialization], Position]:
    if position is not None and is_newest(asset.location, position.version, fs):
        return [], position
    table = Table.load(asset.location, fs)
    is_known = position is not None and position.table_id == table.id and position.version <= table.version
    since = position.version if position is not None and is_known else BEFORE_THE_FIRST
    commits = settled(runs, commits_since(table, since, COMMITS_AT_ONCE))
    if not commits:
        return [], Position(table.id, since)
    told = [commit for commit in commits if commit.kind in REPORTED_KINDS]
    known = runs.known_versions(asset, table.id, min(commit.time_ms for commit in told)) if told else frozenset()
    unknown = [commit for commit in told if commit.version not in known]
    return materializations(asset, table, unknown, fs), Position(table.id, commits[-1].version)


def settled(runs: InstanceRuns, commits: Iterable[TableCommit]) -> list[TableCommit]:
    """Returns the commits up to the first one whose Dagster run has not ended, since that run may still report it."""
    return list(takewhile(lambda commit: commit.run_id is None or not runs.is_running(commit.run_id), commits))


def materializations(
    asset: TableAsset, table: Table, commits: list[TableCommit], fs: FileSystem
) -> list[dg.AssetMaterialization]:
    """Returns an event for each commit; the last one has, besides, the metadata of the whole table."""
    shown = [commit_metadata(table, commit) for commit in commits]
    if shown:
        shown[-1] = shown[-1] | table_metadata(table, fs, topic=asset.topic) | shown[-1]
    return [
        dg.AssetMaterialization(
            asset_key=asset.asset_key,
            description=f"A {commit.kind} that the table's history has and no run of Dagster reported.",
            metadata=metadata,
        )
        for commit, metadata in zip(commits, shown, strict=True)
    ]


def parse_cursor(cursor: str | None) -> dict[str, Position]:
    """Returns the positions by table that a cursor keeps; anything else in the text is ignored."""
    try:
        found = json.loads(cursor or "{}")
    except ValueError:
        return {}
    entries = found.items() if isinstance(found, dict) else ()
    return {location: position for location, entry in entries if (position := _position(entry)) is not None}


def cursor_of(positions: Mapping[str, Position]) -> str:
    """Returns the cursor that `parse_cursor` reads back."""
    return json.dumps(positions)


def _position(entry: object) -> Position | None:
    match entry:
        case [str(table_id), int(version)] if version >= BEFORE_THE_FIRST:
            return Position(table_id, version)
    return None


def _version(record: dg.EventLogRecord, table_id: str) -> int | None:
    """Returns the version of the table `table_id` that a materialization reports; None where it reports none of it."""
    metadata = record.asset_materialization.metadata if record.asset_materialization is not None else {}
    version, of_table = metadata.get(COMMITTED_VERSION), metadata.get(TABLE_ID)
    is_mine = of_table is not None and of_table.value == table_id
    return version.value if is_mine and isinstance(version, dg.IntMetadataValue) else None
