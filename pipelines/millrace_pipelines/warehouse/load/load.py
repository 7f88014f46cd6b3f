"""Load: what a topic has and its table doesn't is appended, each offset exactly once.

    ledger in the table ─┐
                         ├─ plan ─► the loader of ranges writes and verifies ─► rows and ledger in one commit
    ends of the logs ────┘

Where the topic was deleted and created again, or a log was cut, the load stops, or begins another ledger if that is
accepted. A load that is refused has changed nothing: it plans before its first write. That it failed is noted beside
the table's files (`tables.find`), until a load succeeds.

A dry run looks and plans as the load does, and stops before the first write: no table is created or evolved, no ledger
begins, no lease is held, no group's offsets are committed, and no Spark session starts. It raises what the load raises
before that. Only a log whose end a power cut has torn, which a load repairs, is an error then (`delta.commits`).

A load is a span of the traces that its records bring (docs/tracing.md):

    process TOPIC      from the load's first task to the end of its commit
    └ commit TOPIC     the commit of rows and offsets

Each task collects the headers `traceparent` of the records that it loads: at most MAX_CONTEXTS different ones whose
trace is sampled. The driver records the spans; it records none where no task found such a header.

A reload reads offset ranges of a topic again, and replaces their rows; or it reads earlier offsets than the table has:

    selection ─ plan (`ledger.plan`) ─► the loader of ranges writes and verifies ─► rows replaced, starts moved

In a table that is not there yet, the ranges are all that it has, and the next load goes on behind them. In a table that
has them, the rows of these offsets are removed and written again in one commit, so that no reader sees them missing or
twice; the ledger's ends stay where they are, and a load beside it is not disturbed. What retention has deleted since is
reported, and its rows stay.

A table of newest records (upsert) is reloaded up to its ledger's end only, by applying the records again; where a load
moves that end meanwhile, the reload is refused.

A crash leaves the table as it was, or with the whole reload. After a crash between the two commits only the dead
letters are replaced, and another reload does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace.tracing import Attributes, Span, Tracing, sampled_contexts
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.spark.session import SharedSession
from millrace_pipelines.warehouse.dead_letters import known_dead_letters
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.formats import load_to_write
from millrace_pipelines.warehouse.keys.removal import count_rows
from millrace_pipelines.warehouse.ledger.ledger import LedgerChange, LedgerEntry, former_ledgers, ledger_of
from millrace_pipelines.warehouse.ledger.plan import (
    LoadPlan,
    OffsetRange,
    ReloadPlan,
    Selection,
    plan_load,
    plan_reload,
    requested_ranges,
)
from millrace_pipelines.warehouse.load.commit import Append, Replacement
from millrace_pipelines.warehouse.load.history import lineage_of_load, lineage_of_reload
from millrace_pipelines.warehouse.load.jobs import run_alone
from millrace_pipelines.warehouse.load.loader import LoadInputs, Opened, RangeLoader, RunTasks, ledger_change, look
from millrace_pipelines.warehouse.load.options import AcceptOptions, LoadListener, LoadOptions, SilentListener
from millrace_pipelines.warehouse.load.report import LoadPreview, LoadReport, ReloadPreview, ReloadReport, Written
from millrace_pipelines.warehouse.spark_tasks import tasks_of
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.tables.find import failures_noted
from millrace_pipelines.warehouse.tables.open import FoundTables

SERVICE = "millrace-load"


class LoadTrace:
    """Records the trace spans of one load; nothing where tracing is off."""

    def __init__(self, tracing: Tracing | None, clock: Clock) -> None:
        self._tracing = tracing
        self._clock = clock
        self._began_ns = clock.now_ns()

    @contextmanager
    def committing(self, report: LoadReport, traces: Sequence[str]) -> Iterator[None]:
        """Measures a commit; at its end, records spans of the load and the commit, whether it succeeded or failed."""
        contexts = sampled_contexts(trace.encode() for trace in traces)
        if self._tracing is None or not contexts:
            yield
            return
        committing_ns, error = self._clock.now_ns(), None
        try:
            yield
        except Exception as failure:
            error = type(failure).__name__
            raise
        finally:
            ended_ns, attributes = self._clock.now_ns(), _attributes(report)
            load = Span(f"process {report.topic}", self._began_ns, ended_ns, attributes, is_consumer=True, error=error)
            own = self._tracing.record(load, contexts)
            commit: Attributes = {"messaging.destination.name": report.topic, "millrace.table": report.table}
            self._tracing.record(Span(f"commit {report.topic}", committing_ns, ended_ns, commit, error=error), [own])


def _attributes(report: LoadReport) -> Attributes:
    return {
        "messaging.operation.name": "load",
        "messaging.operation.type": "process",
        "messaging.destination.name": report.topic,
        "messaging.batch.message_count": report.rows + report.dead_letters,
        "millrace.table": report.table,
        "millrace.load.id": report.load_id or "",
        "millrace.load.dead_letters": report.dead_letters,
    }


def load_topic(
    options: LoadOptions,
    *,
    spark: SparkSession | SharedSession | None = None,
    listener: LoadListener | None = None,
    fs: FileSystem = DISK,
    clock: Clock = CLOCK,
    tracing: Tracing | None = None,
    run: RunTasks = run_alone,
) -> LoadReport:
    """Loads the records that the topic has and the table lacks, up to the ends that the logs have at the beginning.

    Args:
        options: What to load where.
        spark: The session to use; without one, or with one that is shared, it is started where there is something to
            load.
        listener: Follows the load.
        fs: The disk; by default this machine's.
        clock: The time; by default this machine's.
        tracing: Records a span where records bring a trace context; None for none.
        run: Runs the load's tasks; by default in a job of its own.

    Raises:
        StaleLedgerError: Another load committed first; run again.
        WarehouseError: The load can't go on (see `warehouse.errors`).
        UnknownTopicError, ClientError: The cluster has no such topic, or can't be asked.
    """
    loader = RangeLoader(options, listener or SilentListener(), fs, clock, tracing, run=run)
    with failures_noted(options.table, loader.fs, loader.clock):
        return _load(loader, spark)


def preview_load(options: LoadOptions, *, fs: FileSystem = DISK) -> LoadPreview:
    """Returns what `load_topic` would do now, and writes nothing; raises TopicError, ClientError or WarehouseError."""
    found = look(options, fs)
    change, plan = planned_load(options, found)
    return LoadPreview(
        topic=options.topic,
        table=options.table,
        version=found.tables.version,
        changes=found.tables.changes(),
        new_ledger=None if change is None else change.ledger.name,
        given_up=() if change is None else change.given_up,
        ranges=plan.ranges,
        lost=plan.lost,
        lag=plan.lag,
    )


def planned_load(options: LoadOptions, found: LoadInputs) -> tuple[LedgerChange | None, LoadPlan]:
    """Returns the plan of a load, from what `look` has found, and the change to another ledger before it, or None.

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
            f"{tables.address} has the newest record of each key: rows of the former log may have higher offsets than "
            "newer records of this one, which would be left out; load into another table"
        )
    ledger = tables.ledger if change is None else change.ledger
    plan = plan_load(
        ledger,
        found.log,
        accept_lost_offsets=options.accept_lost_offsets,
        max_records=options.max_records_per_run,
    )
    return change, plan


def _load(loader: RangeLoader, spark: SparkSession | SharedSession | None) -> LoadReport:
    options, found = loader.options, look(loader.options, loader.fs, load=load_to_write)
    change, plan = planned_load(options, found)
    opened = loader.open(found, change)
    report = LoadReport(topic=options.topic, table=options.table, lost=plan.lost, lag=plan.lag)
    if plan.ranges or plan.lost:
        with loader.working(spark, opened, "load") as session:
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
        tasks=tasks_of(spark, f"load {options.topic}"),
    )  # fmt: skip
    with trace.committing(report, [found for result in written.results for found in result.traces]):
        committed = loader.commit(opened.tables, append)
    return replace(report, version=committed.version, upserted=committed.upserted, seconds=loader.seconds())


def _counted(report: LoadReport, written: Written) -> LoadReport:
    return replace(
        report,
        missing=written.missing,
        rows=sum(offset_range.rows for offset_range in written.ranges),
        dead_letters=sum(offset_range.dead_letters for offset_range in written.ranges),
        late=sum(result.late for result in written.results),
        bytes=sum(file.size_bytes for file in written.files),
        value_bytes=sum(result.value_bytes for result in written.results),
        ranges=written.ranges,
        tasks=len(written.results),
    )


REFUSED_OPTIONS = {
    "max_records_per_run": "a reload takes its whole range in one commit; ask for a smaller range",
    "accept_recreated_topic": "a reload keeps to the log that the table was loaded from; load with it first",
    "accept_truncated_log": "a reload keeps to the log that the table was loaded from; load with it first",
}


def reload_topic(
    options: LoadOptions,
    selection: Selection,
    *,
    spark: SparkSession | SharedSession | None = None,
    listener: LoadListener | None = None,
    fs: FileSystem = DISK,
    clock: Clock = CLOCK,
) -> ReloadReport:
    """Reads a part of a topic again, and replaces what the table has of it, or adds it as earlier offsets.

    It takes what `load_topic` takes, but for REFUSED_OPTIONS. The table is created where it is missing.

    Raises:
        OffsetsLostError: Requested offsets are in the log no more, and that is not accepted; those that are missing
            within a log never are, because the rows that the table may have of them would go.
        TopicRecreatedError, LogTruncatedError: The topic, or a log, is not the one that the table was loaded from.
        ModeError: What is requested does not fit the table, or an option is not for a reload.
        WarehouseError: The reload can't be done (see `warehouse.errors`).
    """
    check_options(options)
    loader = RangeLoader(options, listener or SilentListener(), fs, clock)
    found = look(options, fs, load=load_to_write, access=Access.REMOVE)
    plan = planned_reload(options, selection, found)
    opened = loader.open(found)
    report = ReloadReport(topic=options.topic, table=options.table, lost=plan.lost)
    if plan.ranges:
        with loader.working(spark, opened, "reload") as session:
            report = _reloaded(loader, session, opened, plan, report)
    return replace(report, **loader.publish()._asdict())


def preview_reload(options: LoadOptions, selection: Selection, *, fs: FileSystem = DISK) -> ReloadPreview:
    """Returns what `reload_topic` would do now; writes nothing. Raises TopicError, ClientError or WarehouseError."""
    check_options(options)
    found = look(options, fs, access=Access.REMOVE)
    plan, rows = planned_reload(options, selection, found), found.tables.rows
    return ReloadPreview(
        topic=options.topic,
        table=options.table,
        version=found.tables.version,
        changes=found.tables.changes(),
        replaced=plan.replaced,
        backfilled=plan.earlier,
        lost=plan.lost,
        removed_rows=0 if rows is None or found.tables.is_upserted else count_rows(rows, plan.replaced, fs).total(),
    )


def check_options(options: LoadOptions) -> None:
    """Raises ModeError where an option is set that a reload does not support."""
    for name, reason in REFUSED_OPTIONS.items():
        if getattr(options, name):
            raise ModeError(f"{name} is not for a reload: {reason}")


def planned_reload(options: LoadOptions, selection: Selection, found: LoadInputs) -> ReloadPlan:
    """Returns the plan of a reload, and changes nothing; raises a WarehouseError where it can't be done."""
    tables, nothing_accepted = found.tables, AcceptOptions()
    ledger_change(options.source, tables, found.description, found.log, nothing_accepted)
    requested = requested_ranges(selection, options.source, found.log, tables.ledger)
    plan = plan_reload(tables.ledger, found.log, requested, accept_lost_offsets=options.accept_lost_offsets)
    _check_reloadable(tables, plan)
    return plan


def _reloaded(
    loader: RangeLoader, spark: SparkSession, opened: Opened, plan: ReloadPlan, report: ReloadReport
) -> ReloadReport:
    options, written = loader.options, loader.write(spark, opened, plan)
    report = replace(
        report,
        replaced=tuple(offset_range for offset_range in written.ranges if offset_range.range in plan.replaced),
        backfilled=tuple(offset_range for offset_range in written.ranges if offset_range.range in plan.earlier),
        rows=sum(offset_range.rows for offset_range in written.ranges),
        dead_letters=sum(offset_range.dead_letters for offset_range in written.ranges),
    )
    lineage = {**lineage_of_reload(options, loader.load_id, report, loader.clock.now_ms()), **written.recorded}
    replacement = Replacement(
        opened.tables.rows, plan, written,
        lineage=lineage, load_id=loader.load_id, fs=loader.fs, accept_keyless=options.accept_keyless_records,
        tasks=tasks_of(spark, f"reload {options.topic}"),
    )  # fmt: skip
    committed = loader.commit(opened.tables, replacement)
    return replace(report, version=committed.version, removed_rows=committed.removed_rows, seconds=loader.seconds())


def _check_reloadable(tables: FoundTables, plan: ReloadPlan) -> None:
    """Raises ModeError where a reload of the ranges would leave the table different from the topic."""
    if tables.rows is not None:
        check_former_offsets(tables.address, former_ledgers(tables.rows).values(), plan.ranges)
    if not tables.is_upserted:
        return
    ledger = tables.ledger
    for offset_range in plan.ranges:
        entry = ledger.partitions.get(offset_range.partition)
        if entry is not None and (offset_range.until_offset < entry.next_offset or plan.earlier):
            raise ModeError(
                f"{tables.address} has the newest record of each key: older ones can't be put in without those "
                "that follow, and deleted ones would come back; reload up to the end, or into another table"
            )


def check_former_offsets(
    location: str, former: Iterable[Mapping[int, LedgerEntry]], ranges: Iterable[OffsetRange]
) -> None:
    """Raises ModeError where a range has offsets that a former ledger of the table has, too.

    A row does not tell of which log it is, so that those of the former one would go.
    """
    entries = [*former]
    for one in ranges:
        ends = [
            entry.next_offset
            for ledger in entries
            if (entry := ledger.get(one.partition)) is not None
            and one.from_offset < entry.next_offset
            and entry.start_offset < one.until_offset
        ]
        if ends:
            raise ModeError(
                f"{location} has rows of a former log at offsets of partition {one.partition} up to {max(ends) - 1}, "
                "which can't be told from those that the topic has there now: reload from "
                f"{max(ends)} on, or load into another table"
            )
