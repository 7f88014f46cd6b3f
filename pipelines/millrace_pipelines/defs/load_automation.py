"""What happens to tables without a person: the sensors and schedules of loads and audits.

new_records_CLUSTER     requests loads of the tables that lack records
table_lag_CLUSTER       reports the lag of tables
table_history_CLUSTER   reports commits which no run of Dagster reported, with the checks that follow a load
load_TABLE_CLUSTER      a schedule for each cron schedule that tables share, so that one run loads them all
nightly_audit_CLUSTER, bounds_CLUSTER    the checks that follow no load

Commits that no run reported are loads by the command line, continuous loads, and so on. A table's own history says what
was committed, and Dagster's event log which of it is known. A cursor says up to which version each table was looked at,
so that a look costs no more than what is new:

    {"/srv/warehouse/flights": ["<the table's id>", 17], …}

Where the cursor is lost, or is no cursor, a table is looked at from its first version on, and what the event log knows
is passed over. A table that was deleted and created again has another id, and is looked at from its first version too.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

import dagster as dg

from millrace.client.fetched import IsolationLevel
from millrace.errors import MillraceError, WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.declaration.attributes import Check, TableDeclaration
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable, named
from millrace_pipelines.defs.load_due import (
    LagStatus,
    LedgerReader,
    TableLedger,
    decide_loads,
    lag_report,
    lag_status,
    lag_summary,
    lags_of,
    load_runs,
)
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.table_checks import AFTER_EACH_LOAD, AT_NIGHT, check_evaluations, checks_of
from millrace_pipelines.defs.table_metadata import COMMITTED_VERSION, TABLE_ID, commit_metadata, table_metadata
from millrace_pipelines.defs.ticks import failing_in_words, pack_cursor
from millrace_pipelines.defs.topic_checks import checked_topics, topics_as_declared
from millrace_pipelines.defs.topic_sensor import Look, TopicOffsets, left_out, log_failed, read_topic_offsets
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.warehouse.dead_letters import REPLAY_KIND
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.formats import is_newest, load_table
from millrace_pipelines.warehouse.keys.removal import ERASE
from millrace_pipelines.warehouse.load.history import COMMITS_AT_ONCE, LOAD, RELOAD, TableCommit, commits_since
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.table import Table

RUNNING = dg.DefaultScheduleStatus.RUNNING
SENSOR_RUNNING = dg.DefaultSensorStatus.RUNNING
BOUNDS = (Check.FRESHNESS, Check.LAG)
# The queue starts runs with a higher priority first, and those that a person launches have 0.
BEHIND_PEOPLE = {"dagster/priority": "-1"}
LEDGERS = LedgerReader()
CHECKED_AT_ONCE = 20  # tables; their checks read their newest files, and a tick has a minute


def load_selection(tables: list[DeclaredTable]) -> dg.AssetSelection:
    """Returns Dagster's selection of the loads of tables, and of the checks that follow each load."""
    loads = dg.AssetSelection.assets(*(table.keys.table for table in tables)).without_checks()
    return loads | checks_of(tables, *AFTER_EACH_LOAD)


def table_schedules(cluster: DeclaredCluster) -> list[dg.ScheduleDefinition]:
    """Returns the schedules of loads, of the nightly audit, and of checks of lag and age; they run by default."""
    loaded = list(cluster.loaded)
    bounded = [table for table in loaded if table.declared.freshness or table.declared.lag_bound]
    schedules = _load_schedules(cluster)
    if loaded:
        schedules.append(
            dg.ScheduleDefinition(
                name=named("nightly_audit", cluster.name),
                target=checks_of(loaded, *AT_NIGHT),
                cron_schedule="15 4 * * *",
                default_status=RUNNING,
                description="Audits each whole table against its history and its topic, and reads some of its files.",
            )
        )
    topics = checked_topics(cluster)
    if bounded or topics:
        schedules.append(
            dg.ScheduleDefinition(
                name=named("bounds", cluster.name),
                target=checks_of(bounded, *BOUNDS) | topics_as_declared(topics),
                cron_schedule="*/15 * * * *",
                default_status=RUNNING,
                description="Checks freshness and lag of tables with a bound, also while nothing is loaded, and topics "
                "against their declarations.",
            )
        )
    return schedules


def _load_schedules(cluster: DeclaredCluster) -> list[dg.ScheduleDefinition]:
    by_cron = defaultdict(list)
    for table in cluster.loaded:
        if table.declared.schedule is not None:
            by_cron[table.declared.schedule].append(table)
    names = schedule_names(cluster.declared)
    return [
        dg.ScheduleDefinition(
            name=named(names[cron], cluster.name),
            target=load_selection(tables),
            cron_schedule=cron,
            default_status=RUNNING,
            description=f"Loads the tables with the schedule {cron}: {', '.join(table.topic for table in tables)}.",
        )
        for cron, tables in sorted(by_cron.items())
    ]


def schedule_names(declared: Iterable[TableDeclaration]) -> dict[str, str]:
    """Returns a name for each cron schedule of the declared tables: `load_` and the first table that has it.

    A table that is declared after it changes no name, so that the schedule stays on, or off. Where two schedules would
    have one name, each of them ends with a checksum of its cron schedule.
    """
    first: dict[str, str] = {}
    for table in declared:
        if table.schedule is not None:
            words = re.findall(r"[A-Za-z0-9]+", table.topic or table.pattern or "")
            first.setdefault(table.schedule, "_".join(["load", *words]))
    times = Counter(first.values())
    return {
        cron: name if times[name] == 1 else f"{name}_{zlib.crc32(cron.encode()):08x}" for cron, name in first.items()
    }


def load_sensors(cluster: DeclaredCluster) -> list[dg.SensorDefinition]:
    """Returns the sensors of a cluster's loads, none where no topic becomes a table."""
    return [new_records_sensor(cluster), table_lag_sensor(cluster)] if cluster.loaded else []


def new_records_sensor(cluster: DeclaredCluster) -> dg.SensorDefinition:
    """Returns the sensor that loads tables without a schedule; it runs unless the cluster's declaration forbids it."""
    tables = [table for table in cluster.loaded if table.declared.schedule is None]

    @dg.sensor(
        name=named("new_records", cluster.name),
        target=load_selection(list(cluster.loaded)),
        minimum_interval_seconds=30,
        default_status=SENSOR_RUNNING if cluster.load_new_records else dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={cluster.name},
        description="Loads all tables that lack records, or as many as their lag_bound says, in one run; tables with a "
        "schedule are left to it. After a load that failed, a table waits ten minutes. Loads that a person launches go "
        "first.",
    )
    def new_records(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Requests runs that load tables which lack records, and reports each topic's state.

        The requests have no run key: Dagster remembers keys, and would drop a repeated load.
        """
        keys = {table.keys.table: table for table in tables}
        runs = load_runs(context.instance, keys, CLOCK.now_ms())
        seen = look_at_tables(resource_of(context, cluster.name), tables)
        log_failed(context, seen.look)
        decision = decide_loads(
            {table.topic: seen.statuses[table.topic].bounded(table.declared.lag_bound)
             for table in tables if table.topic in seen.statuses},
            under_way={keys[key].topic for key in runs.under_way},
            failed_lately={keys[key].topic for key in runs.failed_lately},
        )  # fmt: skip
        requested = [table for table in tables if table.topic in decision.requested]
        return dg.SensorResult(
            run_requests=[load_request(requested)] if requested else [],
            skip_reason=None if requested else decision.summary + left_out(seen.look),
        )

    return new_records


def load_request(tables: Iterable[DeclaredTable]) -> dg.RunRequest:
    """Returns the request of one run that loads these tables, and checks what it added to each."""
    tables = list(tables)
    return dg.RunRequest(
        asset_selection=[table.keys.table for table in tables],
        asset_check_keys=[
            dg.AssetCheckKey(table.keys.table, check.value) for table in tables for check in AFTER_EACH_LOAD
        ],
        tags=BEHIND_PEOPLE,
    )


def table_lag_sensor(cluster: DeclaredCluster) -> dg.SensorDefinition:
    """Returns the sensor that observes the lag of tables; it runs by default."""

    @dg.sensor(
        name=named("table_lag", cluster.name),
        minimum_interval_seconds=30,
        default_status=SENSOR_RUNNING,
        required_resource_keys={cluster.name},
        description="Observes how many records a load of each table would read now, as long as there are any.",
    )
    def table_lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Reports the lag of each table that lags, or has just caught up; a topic without a table has none."""
        seen = look_at_tables(resource_of(context, cluster.name), cluster.loaded)
        log_failed(context, seen.look)
        lags = {name: one.lag for name, one in seen.statuses.items() if seen.ledgers[name] is not None}
        report = lag_report(lags_of(context.cursor), lags)
        keys = {table.topic: table.keys.table for table in cluster.loaded}
        return dg.SensorResult(
            asset_events=[
                dg.AssetObservation(asset_key=keys[name], metadata={"lag": lag})
                for name, lag in report.observed.items()
            ],
            skip_reason=lag_summary(lags) + left_out(seen.look),
            cursor=pack_cursor({**report.seen}),
        )

    return table_lag


class Tables(NamedTuple):
    """Offsets, ledgers (the offsets that tables hold) and lags by topic, without topics that can't be read."""

    look: Look
    ledgers: Mapping[str, TableLedger]
    statuses: Mapping[str, LagStatus]


def look_at_tables(millrace: MillraceResource, tables: Iterable[DeclaredTable]) -> Tables:
    """Reads the tables' ledgers, then their topics' end offsets, each at the isolation level that the table declares.

    In this order, a load that commits meanwhile never makes a table seem ahead of its topic.
    """
    tables = list(tables)
    ledgers = {table.topic: LEDGERS.read(millrace.table_dir(table.location or table.topic)) for table in tables}
    looks: dict[Isolation, Look] = {}
    with failing_in_words(), millrace.cluster() as client:
        for isolation in {table.declared.isolation for table in tables}:
            looks[isolation] = read_topic_offsets(client, IsolationLevel[isolation.name])
    statuses = {
        table.topic: lag_status(offsets, ledgers[table.topic])
        for table in tables
        if (offsets := looks[table.declared.isolation].topics.get(table.topic)) is not None
    }
    return Tables(_merged(looks.values()), ledgers, statuses)


def _merged(looks: Iterable[Look]) -> Look:
    topics: dict[str, TopicOffsets] = {}
    failed: dict[str, str] = {}
    for one in looks:
        topics |= one.topics
        failed |= one.failed
    return Look(topics, failed)


def table_history_sensor(cluster: DeclaredCluster) -> dg.SensorDefinition:
    """Returns the sensor that reports commits which no Dagster run has reported; it runs by default."""

    @dg.sensor(
        name=named("table_history", cluster.name),
        minimum_interval_seconds=30,
        default_status=SENSOR_RUNNING,
        required_resource_keys={cluster.name},
        description="Reports the loads, reloads, replays and erasures that the command line made, by the tables' "
        "history, and those of dead letters.",
    )
    def table_history(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Reports the commits of each table, and of its dead letters, that no run has reported yet."""
        millrace = resource_of(context, cluster.name)
        assets = []
        for table in cluster.loaded:
            location = millrace.table_dir(table.location or table.topic)
            assets.append(TableAsset(location, table.keys.table, topic=table.keys.topic))
            if table.schema is not None:
                assets.append(TableAsset(dead_letters_dir(location), table.keys.dead_letters))
        positions = parse_cursor(context.cursor)
        seen = look_at_history(context.instance, assets, positions, DISK)
        for location, error in seen.damaged.items():
            context.log.error("%s can't be read: %s", location, error)
        if not seen.events and seen.positions == positions:
            return dg.SkipReason("no table has a commit that is not reported")
        reported = {event.asset_key for event in seen.events}
        tables = [table for table in cluster.loaded if table.keys.table in reported]
        checks = [check for table in tables[:CHECKED_AT_ONCE] for check in _checks(context, table, millrace)]
        return dg.SensorResult(asset_events=[*seen.events, *checks], cursor=cursor_of(seen.positions))

    return table_history


def _checks(
    context: dg.SensorEvaluationContext, table: DeclaredTable, millrace: MillraceResource
) -> list[dg.AssetCheckEvaluation]:
    """Returns the results of the checks that follow a load; none where they fail to run, as where no broker answers."""
    try:
        return list(check_evaluations(table, millrace, AFTER_EACH_LOAD))
    except MillraceError as error:
        context.log.warning("the checks of the table %s can't be made: %s", table.topic, error)
        return []


REPORTED_KINDS = frozenset({LOAD, RELOAD, REPLAY_KIND, ERASE})  # others leave the rows as they are
EVENTS_AT_ONCE = 500
BEFORE_THE_FIRST = -1
RECORDS_AT_ONCE = 1000
CLOCK_DIFFERENCE_S = 300.0


class Position(NamedTuple):
    """Holds a table's id, and up to which of its versions the sensor has reported the commits."""

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


def known_versions(instance: dg.DagsterInstance, asset: TableAsset, table_id: str, after_ms: int) -> frozenset[int]:
    """Returns the versions of a table that materializations since `after_ms` (ms since 1970) have reported.

    The clocks of the process that committed and of the instance may differ by CLOCK_DIFFERENCE_S.
    """
    wanted = dg.AssetRecordsFilter(asset.asset_key, after_timestamp=after_ms / 1000 - CLOCK_DIFFERENCE_S)
    known: set[int] = set()
    cursor: str | None = None
    while True:
        found = instance.fetch_materializations(wanted, limit=RECORDS_AT_ONCE, cursor=cursor)
        known |= {version for record in found.records if (version := _version(record, table_id)) is not None}
        if not found.has_more:
            return frozenset(known)
        cursor = found.cursor


class HistoryLook(NamedTuple):
    """The result of looking at tables: events to report, positions for the next tick, errors by unreadable table."""

    events: list[dg.AssetMaterialization]
    positions: dict[str, Position]
    damaged: dict[str, str]


def look_at_history(
    instance: dg.DagsterInstance, assets: Iterable[TableAsset], positions: Mapping[str, Position], fs: FileSystem
) -> HistoryLook:
    """Looks at tables in their order until there are EVENTS_AT_ONCE events; the rest is left to the next look.

    A table that is not there, or can't be read, keeps its position; positions of tables not in `assets` are dropped.
    """
    assets = list(assets)
    locations = {asset.location for asset in assets}
    seen = HistoryLook(
        [], {location: position for location, position in positions.items() if location in locations}, {}
    )
    for asset in assets:
        if len(seen.events) >= EVENTS_AT_ONCE:
            break
        try:
            events, position = _look_at(instance, asset, positions.get(asset.location), fs)
        except TableNotFoundError:
            continue
        except WarehouseError as error:
            seen.damaged[asset.location] = str(error)
            continue
        seen.events.extend(events)
        seen.positions[asset.location] = position
    return seen


def _look_at(
    instance: dg.DagsterInstance, asset: TableAsset, position: Position | None, fs: FileSystem
) -> tuple[list[dg.AssetMaterialization], Position]:
    if position is not None and is_newest(asset.location, position.version, fs):
        return [], position
    table = load_table(asset.location, fs)
    is_known = position is not None and position.table_id == table.id and position.version <= table.version
    since = position.version if position is not None and is_known else BEFORE_THE_FIRST
    commits = settled(instance, commits_since(table, since, COMMITS_AT_ONCE))
    if not commits:
        return [], Position(table.id, since)
    told = [commit for commit in commits if commit.kind in REPORTED_KINDS]
    known = known_versions(instance, asset, table.id, min(commit.time_ms for commit in told)) if told else frozenset()
    unknown = [commit for commit in told if commit.version not in known]
    return materializations(asset, table, unknown, fs), Position(table.id, commits[-1].version)


def settled(instance: dg.DagsterInstance, commits: Iterable[TableCommit]) -> list[TableCommit]:
    """Returns the commits up to the first one whose Dagster run has not ended, since that run may still report it."""

    def is_settled(commit: TableCommit) -> bool:
        run = None if commit.run_id is None else instance.get_run_by_id(commit.run_id)
        return run is None or run.is_finished

    return list(takewhile(is_settled, commits))


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
