"""The schedules of tables: one for each cron schedule that tables share, so that one run loads them all; and audits."""

from __future__ import annotations

import zlib
from collections import defaultdict

import dagster as dg

from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable
from millrace_pipelines.defs.loads.checks import checks_of
from millrace_pipelines.defs.tables.checks.evaluate import AFTER_EACH_LOAD, AT_NIGHT
from millrace_pipelines.defs.topics.checks import checked_topics, topics_as_declared

RUNNING = dg.DefaultScheduleStatus.RUNNING
BOUNDS = (Check.FRESHNESS, Check.LAG)


def load_selection(tables: list[DeclaredTable]) -> dg.AssetSelection:
    """Returns the loads of tables, and the checks that each load is followed by."""
    loads = dg.AssetSelection.assets(*(table.keys.table for table in tables)).without_checks()
    return loads | checks_of(tables, *AFTER_EACH_LOAD)


def table_schedules(cluster: DeclaredCluster) -> list[dg.ScheduleDefinition]:
    """Returns the schedules of loads, of the nightly audit, and of the checks of bounds; they run by default."""
    loaded = list(cluster.loaded)
    bounded = [table for table in loaded if table.declared.freshness or table.declared.lag_bound]
    schedules = [_load_schedule(cluster.name, cron, tables) for cron, tables in _by_cron(loaded)]
    if loaded:
        schedules.append(
            dg.ScheduleDefinition(
                name=f"{cluster.name}_nightly_audit",
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
                name=f"{cluster.name}_bounds",
                target=checks_of(bounded, *BOUNDS) | topics_as_declared(topics),
                cron_schedule="*/15 * * * *",
                default_status=RUNNING,
                description="Checks freshness and lag of tables with a bound, also while nothing is loaded, and topics "
                "against their declarations.",
            )
        )
    return schedules


def _by_cron(tables: list[DeclaredTable]) -> list[tuple[str, list[DeclaredTable]]]:
    by_cron = defaultdict(list)
    for table in tables:
        if table.declared.schedule is not None:
            by_cron[table.declared.schedule].append(table)
    return sorted(by_cron.items())


def _load_schedule(cluster: str, cron: str, tables: list[DeclaredTable]) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"{cluster}_load_{zlib.crc32(cron.encode()):08x}",
        target=load_selection(tables),
        cron_schedule=cron,
        default_status=RUNNING,
        description=f"Loads the tables with the schedule {cron}: {', '.join(table.topic for table in tables)}.",
    )
