"""Load: what a topic has and its table doesn't is appended, each offset exactly once.

    ledger in the table ─┐
                         ├─ plan ─► the loader of ranges writes and verifies ─► rows and ledger in one commit
    ends of the logs ────┘

Where the topic was deleted and created again, or a log was cut, the load stops, or begins another ledger if that is
accepted. A load that is refused has changed nothing: it plans before its first write. That it failed is noted beside
the table's files (`tables.failed_loads`), until a load succeeds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import SparkSession

from millrace.clock import Clock, SystemClock
from millrace.fs import FileSystem, OsFileSystem
from millrace.tracing import Tracing
from millrace_pipelines.spark.session import SharedSession
from millrace_pipelines.warehouse.dead_letters import known_dead_letters
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.ledger.generation import LedgerChange
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.ledger.plan import LoadPlan, plan_load
from millrace_pipelines.warehouse.load.append import Append
from millrace_pipelines.warehouse.load.lineage import lineage_of_load
from millrace_pipelines.warehouse.load.loader import Opened, RangeLoader
from millrace_pipelines.warehouse.load.look import LoadInputs
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.progress import LoadListener, SilentListener
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.load.same_log import ledger_change
from millrace_pipelines.warehouse.load.traces import LoadTrace
from millrace_pipelines.warehouse.load.verify import Written
from millrace_pipelines.warehouse.tables.failed_loads import failures_noted


class PlannedLoad(NamedTuple):
    """The ledger that the table begins first, None for none, and what is read after that."""

    change: LedgerChange | None
    plan: LoadPlan


def load_topic(
    options: LoadOptions,
    *,
    spark: SparkSession | SharedSession | None = None,
    listener: LoadListener | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    tracing: Tracing | None = None,
) -> LoadReport:
    """Loads what the topic has and the table doesn't, up to where the logs end when it begins.

    Args:
        options: What to load where.
        spark: The session to use; without one, or with one that is shared, it is started where there is something to
            load.
        listener: Follows the load.
        fs: The disk; by default this machine's.
        clock: The time; by default this machine's.
        tracing: Records a span where records bring a trace context; None for none.

    Raises:
        StaleLedgerError: Another load committed first; run again.
        WarehouseError: The load can't go on (see `warehouse.errors`).
        UnknownTopicError, ClientError: The cluster has no such topic, or can't be asked.
    """
    loader = RangeLoader(options, listener or SilentListener(), fs or OsFileSystem(), clock or SystemClock(), tracing)
    with failures_noted(options.table, loader.fs, loader.clock):
        return _load(loader, spark)


def planned_load(options: LoadOptions, found: LoadInputs) -> PlannedLoad:
    """Plans a load, which changes nothing.

    Raises:
        TopicRecreatedError, LogTruncatedError: The topic, or a log, is not the one that the table was loaded from, and
            that is not accepted.
        OffsetsLostError: Retention deleted offsets that the table doesn't have, and that is not accepted.
        ModeError: The table has one row for each key, and can't go on with another log.
    """
    tables = found.tables
    change = ledger_change(options.source, tables, found.description, found.log, options)
    if change is not None and tables.is_upserted:
        raise ModeError(
            f"{tables.location} has the newest record of each key: rows of the former log may have higher offsets than "
            "newer records of this one, which would be left out; load into another table"
        )
    ledger = tables.ledger if change is None else change.ledger
    plan = plan_load(
        ledger,
        found.log,
        accept_lost_offsets=options.accept_lost_offsets,
        max_records=options.max_records_per_run,
    )
    return PlannedLoad(change, plan)


def _load(loader: RangeLoader, spark: SparkSession | SharedSession | None) -> LoadReport:
    options, found = loader.options, loader.look()
    change, plan = planned_load(options, found)
    opened = loader.open(found, change)
    report = LoadReport(topic=options.topic, table=options.table, lost=plan.lost, lag=plan.lag)
    if plan.ranges or plan.lost:
        with loader.working(spark, "load") as session:
            report = _loaded(loader, session, opened, plan, report)
    return replace(report, **loader.publish()._asdict())


def _loaded(loader: RangeLoader, spark: SparkSession, opened: Opened, plan: LoadPlan, report: LoadReport) -> LoadReport:
    options, ledger = loader.options, ledger_of(opened.tables.rows)
    dead_letters, trace = opened.tables.dead_letters, LoadTrace(loader.tracing, loader.clock)
    known = known_dead_letters(dead_letters, ledger) if dead_letters else {}
    written = loader.write(spark, opened, plan, known, may_accept_missing=True)
    report = _counted(replace(report, load_id=loader.load_id, seconds=loader.seconds()), written)
    lineage = {**lineage_of_load(options, ledger, report, loader.clock.now_ms()), **written.recorded}
    append = Append(
        opened.tables.rows, plan, written,
        lineage=lineage, load_id=loader.load_id, fs=loader.fs, accept_keyless=options.accept_keyless_records,
    )  # fmt: skip
    with trace.committing(report, [found for result in written.results for found in result.traces]):
        committed = loader.commit(opened.tables, append)
    return replace(report, version=committed.version, upserted=committed.upserted, seconds=loader.seconds())


def _counted(report: LoadReport, written: Written) -> LoadReport:
    return replace(
        report,
        missing=written.missing,
        rows=sum(span.rows for span in written.ranges),
        dead_letters=sum(span.dead_letters for span in written.ranges),
        late=sum(result.late for result in written.results),
        bytes=sum(file.size_bytes for file in written.files),
        value_bytes=sum(result.value_bytes for result in written.results),
        ranges=written.ranges,
        tasks=len(written.results),
    )
