"""Load: what a topic has and its table doesn't is appended, each offset exactly once.

    ledger in the table ─┐
                         ├─ plan ─► the loader of ranges writes and verifies ─► rows and ledger in one commit
    ends of the logs ────┘

Before anything is planned, the ledger is settled: where the topic was deleted and created again, or a log was cut, the
load stops, or begins another ledger if that is accepted.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from millrace.clock import Clock, SystemClock
from millrace.fs import FileSystem, OsFileSystem
from millrace_pipelines.warehouse.dead_letters.letters import known_letters
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.ledger.generation import LedgerChange, begin_ledger
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.ledger.plan import LoadPlan, plan_load
from millrace_pipelines.warehouse.load.append import Append
from millrace_pipelines.warehouse.load.lineage import lineage_of_load
from millrace_pipelines.warehouse.load.loader import Opened, RangeLoader
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.progress import LoadListener, SilentListener
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.load.same_log import ledger_change
from millrace_pipelines.warehouse.load.verify import Written
from millrace_pipelines.warehouse.tables.choices import Mode
from millrace_pipelines.warehouse.tables.mode import mode_of
from millrace_pipelines.warehouse.tables.open import LoadTables, open_tables


def load_topic(
    options: LoadOptions,
    *,
    spark: SparkSession | None = None,
    listener: LoadListener | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> LoadReport:
    """Loads what the topic has and the table doesn't, up to where the logs end when it begins.

    Args:
        options: What to load where.
        spark: The session to use; without one, a session is started where there is something to load.
        listener: Follows the load.
        fs: The disk; by default this machine's.
        clock: The time; by default this machine's.

    Raises:
        StaleLedgerError: Another load committed first; run again.
        WarehouseError: The load can't go on (see `warehouse.errors`).
        UnknownTopicError, ClientError: The cluster has no such topic, or can't be asked.
    """
    loader = RangeLoader(options, listener or SilentListener(), fs or OsFileSystem(), clock or SystemClock())
    opened = _settled(loader, loader.open())
    plan = plan_load(
        ledger_of(opened.tables.rows),
        opened.log,
        accept_lost_offsets=options.accept_lost_offsets,
        max_records=options.max_records_per_run,
    )
    report = LoadReport(topic=options.topic, table=options.table, lost=plan.lost, lag=plan.lag)
    if plan.ranges or plan.lost:
        with loader.working(spark, "load") as session:
            report = _loaded(loader, session, opened, plan, report)
    return replace(report, **loader.publish()._asdict())


def _loaded(loader: RangeLoader, spark: SparkSession, opened: Opened, plan: LoadPlan, report: LoadReport) -> LoadReport:
    options, ledger = loader.options, ledger_of(opened.tables.rows)
    dead_letters = opened.tables.dead_letters
    written = loader.write(spark, opened, plan, known_letters(dead_letters, ledger) if dead_letters else {})
    report = _counted(replace(report, load_id=loader.load_id, seconds=loader.seconds()), written)
    lineage = lineage_of_load(options, ledger, report, loader.clock.now_ms())
    append = Append(
        opened.tables.rows, plan, written,
        lineage=lineage, load_id=loader.load_id, fs=loader.fs, accept_keyless=options.accept_keyless_records,
    )  # fmt: skip
    committed = loader.commit(opened.tables, append)
    return replace(report, version=committed.version, upserted=committed.upserted, seconds=loader.seconds())


def _settled(loader: RangeLoader, opened: Opened) -> Opened:
    """Returns the tables at the ledger of this topic and these logs: the present one, or a new one if accepted."""
    options, tables = loader.options, opened.tables
    change = ledger_change(options.source, tables, opened.description, opened.log, options)
    if change is not None:
        _check_appended(tables.rows)
        _begin(loader, tables.rows, change)
    ledger = ledger_of(tables.rows) if change is None else change.ledger
    if tables.dead_letters is not None and ledger_of(tables.dead_letters).name != ledger.name:
        _begin(loader, tables.dead_letters, LedgerChange(replace(ledger, partitions={}), ()))
    elif change is None:
        return opened
    reopened: LoadTables = open_tables(tables.rows.location, ledger.topic, ledger.topic_id, opened.schema, loader.fs)
    return opened._replace(tables=reopened)


def _begin(loader: RangeLoader, table: Table, change: LedgerChange) -> None:
    begin_ledger(table, change, load_id=loader.load_id, time_ms=loader.clock.now_ms())


def _check_appended(table: Table) -> None:
    """Raises ModeError where rows of a former ledger would be held against records of the next, by their offsets."""
    if mode_of(table) is Mode.UPSERT:
        raise ModeError(
            f"{table.location} has the newest record of each key: rows of the former log may have higher offsets than "
            "newer records of this one, which would be left out; load into another table"
        )


def _counted(report: LoadReport, written: Written) -> LoadReport:
    return replace(
        report,
        rows=sum(span.rows for span in written.ranges),
        dead_letters=sum(span.dead_letters for span in written.ranges),
        late=sum(result.late for result in written.results),
        bytes=sum(file.size_bytes for file in written.files),
        value_bytes=sum(result.value_bytes for result in written.results),
        ranges=written.ranges,
        tasks=len(written.results),
    )
