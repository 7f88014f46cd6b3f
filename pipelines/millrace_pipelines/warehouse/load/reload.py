"""Reload: offset ranges of a topic are read again, and their rows replaced; or earlier offsets than the table has.

    selection ─ plan (`ledger.plan`) ─► the loader of ranges writes and verifies ─► rows replaced, starts moved

In a table that is not there yet, the ranges are all that it has, and the next load goes on behind them. In a table that
has them, the rows of these offsets are removed and written again in one commit, so that no reader sees them missing or
twice; the ledger's ends stay where they are, and a load beside it is not disturbed. What retention has deleted since is
reported, and its rows stay.

A table of newest records (upsert) is reloaded up to its ledger's end only, by applying the records again; where a load
moves that end meanwhile, the reload is refused.

A crash leaves the table as it was, or with the whole reload. After a crash between the two commits only the
dead letters are replaced, and another reload does the rest.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.spark.session import SharedSession
from millrace_pipelines.warehouse.delta.protocol import Access
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.keys.removal import count_rows
from millrace_pipelines.warehouse.ledger.ledger import former_ledgers
from millrace_pipelines.warehouse.ledger.plan import ReloadPlan, plan_reload
from millrace_pipelines.warehouse.ledger.selection import Selection, requested_ranges
from millrace_pipelines.warehouse.load.commit import Replacement
from millrace_pipelines.warehouse.load.history import lineage_of_reload
from millrace_pipelines.warehouse.load.loader import LoadInputs, Opened, RangeLoader, look
from millrace_pipelines.warehouse.load.options import AcceptOptions, LoadOptions
from millrace_pipelines.warehouse.load.progress import LoadListener, SilentListener
from millrace_pipelines.warehouse.load.report import ReloadPreview, ReloadReport
from millrace_pipelines.warehouse.load.same_log import ledger_change
from millrace_pipelines.warehouse.tables.open import FoundTables

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
    """Reads a part of a topic again, and puts it in the place of what the table has of it; or of earlier offsets.

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
    found = loader.look(Access.REMOVE)
    plan = planned_reload(options, selection, found)
    opened = loader.open(found)
    report = ReloadReport(topic=options.topic, table=options.table, lost=plan.lost)
    if plan.ranges:
        with loader.working(spark, "reload") as session:
            report = _reloaded(loader, session, opened, plan, report)
    return replace(report, **loader.publish()._asdict())


def preview_reload(options: LoadOptions, selection: Selection, *, fs: FileSystem = DISK) -> ReloadPreview:
    """Returns what `reload_topic` would do now; raises what it raises before its first write."""
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
        removed_rows=0 if rows is None or found.tables.is_upserted else count_rows(rows, plan.replaced).total(),
    )


def check_options(options: LoadOptions) -> None:
    """Raises ModeError for an option that a reload can't obey."""
    for name, reason in REFUSED_OPTIONS.items():
        if getattr(options, name):
            raise ModeError(f"{name} is not for a reload: {reason}")


def planned_reload(options: LoadOptions, selection: Selection, found: LoadInputs) -> ReloadPlan:
    """Plans a reload, which changes nothing; raises what `reload_topic` raises before its first write."""
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
        replaced=tuple(span for span in written.ranges if span.range in plan.replaced),
        backfilled=tuple(span for span in written.ranges if span.range in plan.earlier),
        rows=sum(span.rows for span in written.ranges),
        dead_letters=sum(span.dead_letters for span in written.ranges),
    )
    lineage = {**lineage_of_reload(options, loader.load_id, report, loader.clock.now_ms()), **written.recorded}
    replacement = Replacement(
        opened.tables.rows, plan, written,
        lineage=lineage, load_id=loader.load_id, fs=loader.fs, accept_keyless=options.accept_keyless_records,
    )  # fmt: skip
    committed = loader.commit(opened.tables, replacement)
    return replace(report, version=committed.version, removed_rows=committed.removed_rows, seconds=loader.seconds())


def _check_reloadable(tables: FoundTables, plan: ReloadPlan) -> None:
    """Raises ModeError where replacing ranges would not leave the table as the topic says."""
    if tables.rows is not None and former_ledgers(tables.rows) and plan.ranges:
        raise ModeError(
            f"{tables.location} has rows of former logs too, at offsets of their own: load into another table"
        )
    if not tables.is_upserted:
        return
    ledger = tables.ledger
    for span in plan.ranges:
        entry = ledger.partitions.get(span.partition)
        if entry is not None and (span.until_offset < entry.next_offset or plan.earlier):
            raise ModeError(
                f"{tables.location} has the newest record of each key: older ones can't be put in without those "
                "that follow, and deleted ones would come back; reload up to the end, or into another table"
            )
