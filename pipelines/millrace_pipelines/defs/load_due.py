"""Which loads are due: a topic's offsets and its table's ledger decide, and then what other runs say of loads.

A run says by a tag which tables it failed to load, for another attempt, a re-execution, and the sensor of loads:

    millrace/failed_tables: ["millrace/table/flights"]      the loads are done, and this one failed

A run without the tag has not come to the end of its loads: all tables that it selected count as not loaded.

Sensors read ledgers tick after tick, in a code server that lives for days. A ledger of 100 partitions takes a tenth of
a second to read, and the version of its table two milliseconds. So a ledger is kept until its table has another one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

import dagster as dg

from millrace.errors import WarehouseError
from millrace_pipelines.defs.load_process import Outcome
from millrace_pipelines.defs.ticks import UNFINISHED, counted, unpack_cursor
from millrace_pipelines.defs.topic_sensor import TopicOffsets
from millrace_pipelines.machine import DISK
from millrace_pipelines.runs.jobs import Failed
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import Ledger, ledger_of

REQUESTS_PER_TICK = 20
FAILED_TABLES = "millrace/failed_tables"
FROM_FAILURE = "dagster/is_resume_retry"
PARENT_RUN = "dagster/parent_run_id"
RETRY_AFTER_MS = 600_000  # a permanent failure is reported again, but not at every tick

TableLedger: TypeAlias = Ledger | WarehouseError | None
"""A table's ledger, the error for which it can't be read, or None where there is no table."""


class LagStatus(NamedTuple):
    """The lag of a table, and whether a load is due.

    `lag` is the number of offsets that a load would read now, None where it can't be told; `is_due` says whether a load
    has something to load, or to report: a topic that was created again, a log that was cut, a damaged table.
    """

    lag: int | None
    is_due: bool

    def bounded(self, lag_bound: int | None) -> LagStatus:
        """Returns the status, not due where the lag is below `lag_bound`; None for no bound."""
        is_within = lag_bound is not None and self.lag is not None and self.lag < lag_bound
        return self._replace(is_due=self.is_due and not is_within)


def lag_status(offsets: TopicOffsets, ledger: TableLedger) -> LagStatus:
    """Compares a table's ledger with its topic's offsets; the ledger must have been read before the offsets."""
    if ledger is None:
        return LagStatus(offsets.records, offsets.is_ahead_of({}))
    if isinstance(ledger, WarehouseError) or (offsets.topic_id and offsets.topic_id != ledger.topic_id):
        return LagStatus(None, is_due=True)
    following = {partition: entry.next_offset for partition, entry in ledger.partitions.items()}
    if offsets.is_behind(following):
        return LagStatus(None, is_due=True)
    return LagStatus(offsets.lag(following), offsets.is_ahead_of(following))


class LoadDecision(NamedTuple):
    """Topics by what a tick decides for them: a load is requested, or the reason why none is."""

    requested: list[str]
    up_to_date: list[str]
    under_way: list[str]
    failed_lately: list[str]
    postponed: list[str]

    @property
    def summary(self) -> str:
        """Returns the number of topics by decision: "12 topics: 9 up to date, 3 with a load that waits or runs"."""
        parts = {
            "requested": self.requested,
            "up to date": self.up_to_date,
            "with a load that waits or runs": self.under_way,
            "with a load that failed lately": self.failed_lately,
            "left to the next tick": self.postponed,
        }
        counts = [f"{len(topics)} {what}" for what, topics in parts.items() if topics]
        total = counted(sum(map(len, parts.values())), "topic")
        return f"{total}: {', '.join(counts)}" if counts else total


def decide_loads(
    statuses: Mapping[str, LagStatus],
    *,
    under_way: Collection[str],
    failed_lately: Collection[str],
    limit: int = REQUESTS_PER_TICK,
) -> LoadDecision:
    """Returns for which topics a load is requested: due and free ones, at most `limit`, the largest lag first.

    Args:
        statuses: By topic.
        under_way: Topics with a load that waits or runs.
        failed_lately: Topics whose last load failed a short while ago.
        limit: How many loads one tick may request.
    """
    due = [name for name, one in statuses.items() if one.is_due]
    free = [name for name in due if name not in under_way and name not in failed_lately]
    free.sort(key=lambda name: (-(statuses[name].lag or 0), name))
    return LoadDecision(
        requested=free[:limit],
        up_to_date=[name for name, one in statuses.items() if not one.is_due],
        under_way=[name for name in due if name in under_way],
        failed_lately=[name for name in due if name in failed_lately and name not in under_way],
        postponed=free[limit:],
    )


class LedgerReader:
    """Reads the ledgers of tables, and keeps each one until its table has a newer version."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, int, Ledger]] = {}

    def read(self, location: str) -> TableLedger:
        """Returns a table's newest ledger, None without a table, or the WarehouseError by which it can't be read."""
        try:
            return self._newest(location)
        except TableNotFoundError:
            return None
        except WarehouseError as error:
            return error

    def _newest(self, location: str) -> Ledger:
        table = load_table(location, DISK)
        kept = self._kept.get(location)
        if kept is None or kept[:2] != (table.id, table.version):
            kept = self._kept[location] = table.id, table.version, ledger_of(table)
        return kept[2]


class LagReport(NamedTuple):
    """Lags in offsets by topic: those to report now, and those above zero, for the next tick to compare."""

    observed: dict[str, int]
    seen: dict[str, int]


def lag_report(seen: Mapping[str, int], lags: Mapping[str, int | None]) -> LagReport:
    """Returns the lags to report: those above zero now or at the last tick. An unknown lag (None) stays as it was."""
    told = {name: lag for name, lag in lags.items() if lag is not None}
    unknown = {name: seen[name] for name, lag in lags.items() if lag is None and name in seen}
    return LagReport(
        observed={name: lag for name, lag in told.items() if lag or name in seen},
        seen={name: lag for name, lag in told.items() if lag} | unknown,
    )


def lag_summary(lags: Mapping[str, int | None]) -> str:
    """Returns the numbers of tables, and of those that lag, in one line: "12 tables, 2 behind"."""
    behind = sum(1 for lag in lags.values() if lag)
    unknown = sum(1 for lag in lags.values() if lag is None)
    said = f"{counted(len(lags), 'table')}, {behind or 'none'} behind"
    return f"{said}, {unknown} whose load has an error to report" if unknown else said


def lags_of(cursor: str | None) -> dict[str, int]:
    """Returns the lags by topic that a cursor keeps; none for a text that is no such cursor."""
    value = unpack_cursor(cursor)
    return {name: lag for name, lag in value.items() if isinstance(lag, int)} if isinstance(value, dict) else {}


def noting_failures(
    context: dg.AssetExecutionContext, outcomes: Iterable[tuple[str, Outcome]]
) -> Iterator[tuple[str, Outcome]]:
    """Yields the given outcomes, then writes the asset keys of the failed tables into the run's tag FAILED_TABLES."""
    failed: list[str] = []
    for key, outcome in outcomes:
        if isinstance(outcome, Failed):
            failed.append(key)
        yield key, outcome
    context.instance.add_run_tags(context.run.run_id, {FAILED_TABLES: json.dumps(failed)})


def failed_tables(run: dg.DagsterRun) -> frozenset[dg.AssetKey] | None:
    """Returns the asset keys in a run's tag FAILED_TABLES; None where it has none, as its loads have not all ended."""
    try:
        written = json.loads(run.tags[FAILED_TABLES])
    except (KeyError, ValueError):
        return None
    return frozenset(dg.AssetKey.from_user_string(key) for key in written if isinstance(key, str))


def left_to_load(context: dg.AssetExecutionContext) -> Collection[dg.AssetKey]:
    """Returns the selected tables; in a retry or a resumed run, only those of them that had failed."""
    selected = frozenset[dg.AssetKey](context.selected_asset_keys)
    run = context.instance.get_run_by_id(context.run.run_id) if context.retry_number else _resumed(context)
    failed = None if run is None else failed_tables(run)
    return selected if failed is None else selected & failed


def _resumed(context: dg.AssetExecutionContext) -> dg.DagsterRun | None:
    parent = context.run.tags.get(PARENT_RUN)
    is_resumed = parent is not None and context.run.tags.get(FROM_FAILURE) == "true"
    return context.instance.get_run_by_id(parent) if parent is not None and is_resumed else None


class LoadRuns(NamedTuple):
    """Tables with a load that waits or runs, and tables whose newest load failed less than RETRY_AFTER_MS ago."""

    under_way: frozenset[dg.AssetKey]
    failed_lately: frozenset[dg.AssetKey]


def load_runs(instance: dg.DagsterInstance, tables: Collection[dg.AssetKey], now_ms: int) -> LoadRuns:
    """Asks the Dagster instance which tables have a load under way, and which failed lately, with one query each."""
    since = datetime.fromtimestamp((now_ms - RETRY_AFTER_MS) / 1000, UTC)
    unfinished = instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED))
    lately = instance.get_run_records(dg.RunsFilter(updated_after=since))
    return LoadRuns(
        under_way=frozenset(key for one in unfinished for key in _loaded(one.dagster_run, tables)),
        failed_lately=just_failed(lately, tables, now_ms),
    )


def just_failed(
    newest_first: Iterable[dg.RunRecord], tables: Collection[dg.AssetKey], now_ms: int
) -> frozenset[dg.AssetKey]:
    """Returns the tables whose newest load among these runs failed less than RETRY_AFTER_MS ago."""
    newest: dict[dg.AssetKey, dg.RunRecord] = {}
    for record in newest_first:
        for key in _loaded(record.dagster_run, tables):
            newest.setdefault(key, record)
    return frozenset(
        key
        for key, one in newest.items()
        if _has_failed(one.dagster_run, key) and now_ms - 1000 * (one.end_time or 0) < RETRY_AFTER_MS
    )


def _loaded(run: dg.DagsterRun, tables: Collection[dg.AssetKey]) -> list[dg.AssetKey]:
    """Returns those of `tables` that a run was to load."""
    return [key for key in run.asset_selection or () if key in tables]


def _has_failed(run: dg.DagsterRun, table: dg.AssetKey) -> bool:
    """Returns whether a run failed at this table; it may have failed at another one, or at a check."""
    if run.status is not dg.DagsterRunStatus.FAILURE:
        return False
    failed = failed_tables(run)
    return failed is None or table in failed
