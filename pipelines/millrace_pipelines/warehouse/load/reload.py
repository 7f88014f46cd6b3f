"""Reload: offset ranges of a topic read again, their rows replaced; and backfill, below where a table begins (spec H3).

    plan (`modes.plan_reload`) ─ Spark tasks, as a load's ─ verify ─ dead letters replaced ─ rows replaced, starts moved

Into a table that is not there yet, the ranges are all that it has, and the next load goes on behind them. In a table
that has them, the rows of these offsets are removed and written anew in one commit, so that no reader sees them
missing or twice; the ledger's ends stay where they are, and a load beside it is not disturbed. What
retention has taken since is told, and the rows that are there stay.

A table of newest records (upsert) is reloaded up to its ledger's end only, by applying the records again; where a load
moves that end meanwhile, it is refused.

A crash leaves the table as it was, or whole; between its two commits, the dead letters are replaced already, and
reloading again does the rest.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from millrace.clock import Clock, SystemClock
from millrace.fs import FileSystem, OsFileSystem
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.spark.read import LogOffsets, TopicSource, describe_topic, log_offsets, read_range
from millrace_pipelines.spark.session import cores_of, spark_session
from millrace_pipelines.warehouse.dead_letters.marks import finish_replay
from millrace_pipelines.warehouse.delta.compression import loaded_compression
from millrace_pipelines.warehouse.delta.leases import lease
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.rewrite import MakeRewrite, Rewrite, absent_offsets, files_removed_on, rewrite
from millrace_pipelines.warehouse.delta.store import store_at
from millrace_pipelines.warehouse.delta.table import DataFile, Table
from millrace_pipelines.warehouse.errors import ModeError, StaleLedgerError
from millrace_pipelines.warehouse.keys.erased import ErasedKeys
from millrace_pipelines.warehouse.keys.replace import replace_ranges
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.generation import agreed_end, next_ledger
from millrace_pipelines.warehouse.ledger.ledger import (
    Ledger,
    LedgerEntry,
    former_ledgers,
    ledger_of,
    start_app_id,
    swap,
)
from millrace_pipelines.warehouse.ledger.plan import LostRange, OffsetRange, records_per_task, split_ranges
from millrace_pipelines.warehouse.ledger.plan_reload import ReloadPlan, plan_reload
from millrace_pipelines.warehouse.ledger.selection import Selection, requested_ranges
from millrace_pipelines.warehouse.load.jobs import run_tasks
from millrace_pipelines.warehouse.load.lineage import LOAD
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.progress import LoadListener, SilentListener, Step
from millrace_pipelines.warehouse.load.task import LoadSpec, TaskResult
from millrace_pipelines.warehouse.load.verify import LoadedRange, verify_results
from millrace_pipelines.warehouse.payload.schema import read_payload_schema
from millrace_pipelines.warehouse.tables.choices import Mode
from millrace_pipelines.warehouse.tables.mode import mode_of
from millrace_pipelines.warehouse.tables.open import LoadTables, open_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """What a reload did; `version` is None where its ranges have no offset.

    `lost` are offsets that were asked for and can't be read any more; rows of them that the table has stay.
    """

    topic: str
    table: str
    replaced: tuple[LoadedRange, ...] = ()
    backfilled: tuple[LoadedRange, ...] = ()
    lost: tuple[LostRange, ...] = ()
    rows: int = 0
    dead_letters: int = 0
    removed_rows: int = 0
    seconds: float = 0.0
    version: int | None = None


def reload_topic(
    options: LoadOptions,
    selection: Selection,
    *,
    spark: SparkSession | None = None,
    listener: LoadListener | None = None,
) -> ReloadReport:
    """Read a part of a topic again, and put it in the place of what the table has of it.

    Args:
        options: What to read into which table; one that is not there is made.
        selection: Which part.
        spark: A session to use; without one, a session of its own is started.
        listener: Follows the reload.

    Raises:
        OffsetsLostError: Offsets that were asked for are in the log no more, and that is not accepted.
        ModeError: What was asked for does not fit the table.
        WarehouseError: The reload can't be done (see `warehouse.errors`).
    """
    return _Reload(options, listener or SilentListener(), OsFileSystem(), SystemClock()).run(selection, spark)


class _Reload:
    """One reload, from its plan to its report."""

    def __init__(self, options: LoadOptions, listener: LoadListener, fs: FileSystem, clock: Clock) -> None:
        self._options = options
        self._location = store_at(options.table, fs).location
        self._source = TopicSource(options.bootstrap, options.topic, Isolation(options.isolation))
        self._listener = listener
        self._fs = fs
        self._clock = clock
        self._load_id = uuid.uuid4().hex

    def run(self, selection: Selection, spark: SparkSession | None) -> ReloadReport:
        options, started_ms = self._options, self._clock.monotonic_ms()
        payload = None if options.schema is None else read_payload_schema(options.schema)
        description = describe_topic(self._source)
        tables = open_tables(
            self._location, options.topic, description.topic_id, payload, self._fs,
            mode=options.mode, compression=options.compression,
        )  # fmt: skip
        log = log_offsets(self._source, description.partitions)
        ledger = ledger_of(tables.rows)
        _check_same_log(ledger, description.topic_id, log)
        wanted = requested_ranges(selection, self._source, log, ledger)
        plan = plan_reload(ledger, log, wanted, accept_lost_offsets=options.accept_lost_offsets)
        _check_reloadable(tables.rows, plan)
        report = ReloadReport(topic=options.topic, table=options.table, lost=plan.lost)
        if not plan.ranges:
            return report
        self._listener.reached(Step.PLANNED)
        with (
            lease(self._location, self._load_id, self._fs),
            nullcontext(spark) if spark else self._session() as session,
        ):
            report = self._write_and_commit(session, tables, plan, report)
        return replace(report, seconds=(self._clock.monotonic_ms() - started_ms) / 1000)

    def _session(self) -> AbstractContextManager[SparkSession]:
        return spark_session(f"reload {self._options.topic}", self._options.master, self._options.spark_settings)

    def _write_and_commit(
        self, spark: SparkSession, tables: LoadTables, plan: ReloadPlan, report: ReloadReport
    ) -> ReloadReport:
        locations = [tables.rows.location, *([tables.dead_letters.location] if tables.dead_letters else [])]
        with files_removed_on(BaseException, locations, self._load_id, self._fs):
            results = self._write(spark, tables, plan)
            backfilled, replaced = _verified(plan.backfill, results), _verified(plan.replaced, results)
        self._listener.reached(Step.WRITTEN)
        commit = _Replacement(
            plan, results, self._lineage(plan, backfilled, replaced), self._fs,
            accept_keyless=self._options.accept_keyless_records,
        )  # fmt: skip
        if tables.dead_letters is not None:
            with files_removed_on(StaleLedgerError, locations, self._load_id, self._fs):
                finish_replay(tables.rows, tables.dead_letters, self._fs)
                commit.dead_letters(tables.rows, tables.dead_letters)
            self._listener.reached(Step.DEAD_LETTERS_COMMITTED)
        with files_removed_on(StaleLedgerError, [tables.rows.location], self._load_id, self._fs):
            version = commit.rows(tables.rows)
        self._listener.reached(Step.COMMITTED)
        return replace(
            report,
            replaced=replaced,
            backfilled=backfilled,
            rows=sum(result.rows for result in results),
            dead_letters=sum(result.dead_letters for result in results),
            removed_rows=commit.removed_rows,
            version=version,
        )

    def _write(self, spark: SparkSession, tables: LoadTables, plan: ReloadPlan) -> list[TaskResult]:
        max_records = records_per_task(plan.ranges, cores_of(spark), self._options.max_records_per_task)
        tasks = split_ranges(plan.ranges, max_records)
        spec = LoadSpec(
            load_id=self._load_id,
            topic=self._options.topic,
            table=tables.rows.location,
            dead_letters_table=dead_letters_dir(tables.rows.location),
            payload=tables.payload,
            ledger=ledger_of(tables.rows).name,
            compression=loaded_compression(tables.rows.configuration),
        )
        told = self._listener.tasks_done
        return run_tasks(
            spark, tasks, spec, partial(read_range, self._source), lambda done, records: told(done, len(tasks), records)
        )

    def _lineage(
        self, plan: ReloadPlan, backfilled: Iterable[LoadedRange], replaced: Iterable[LoadedRange]
    ) -> dict[str, Any]:
        """A load of the backfilled ranges, as an audit sees it; the replaced ones move no ledger."""
        return {
            "kind": LOAD,
            "load_id": self._load_id,
            "time_ms": self._clock.now_ms(),
            "topic": self._options.topic,
            "isolation": self._options.isolation,
            "ranges": [asdict(span) for span in backfilled],
            "lost": [],
            "replaced": [asdict(span) for span in replaced],
            "not_reloaded": [span._asdict() for span in plan.lost],
        }


class _Replacement:
    """The two commits of a reload."""

    def __init__(
        self,
        plan: ReloadPlan,
        results: Sequence[TaskResult],
        lineage: Mapping[str, Any],
        fs: FileSystem,
        *,
        accept_keyless: bool,
    ) -> None:
        self._plan = plan
        self._results = results
        self._lineage = lineage
        self._fs = fs
        self._accept_keyless = accept_keyless
        self.removed_rows = 0

    def rows(self, table: Table) -> int:
        """Commit the rows; the table's version after it."""
        files = self._staged("rows")
        ledger = ledger_of(table)
        expected, transactions = swap(ledger, _unknown(ledger, self._plan.following))
        for partition, entry in self._plan.following.items():
            if partition in ledger.partitions:
                app_id = start_app_id(ledger.name, partition)
                expected[app_id] = ledger.partitions[partition].start_offset
                transactions[app_id] = entry.start_offset
        lineage = {**self._lineage, "ledger": ledger.name, "topic_id": ledger.topic_id}
        if mode_of(table) is Mode.UPSERT:
            unmoved, ends = swap(ledger, ledger.partitions)  # what a load deleted meanwhile would come back
            upsert = Upsert(
                files, self._fs, expected=expected | unmoved, transactions=transactions | ends, lineage=lineage,
                accept_keyless=self._accept_keyless,
            )  # fmt: skip
            try:
                return upsert.commit(table.location)[0]
            finally:
                self._remove_staged(table, files)
        return self._rewrite(
            table,
            files,
            lambda table, operation_id: replace(
                self._replaced(table, operation_id, "rows", lineage, ErasedKeys.of(table.lineage())),
                expected=expected,
                transactions=transactions,
            ),
        )

    def dead_letters(self, rows: Table, table: Table) -> None:
        """Commit the dead letters; nothing where there were none and are none.

        Which keys are erased the rows' table says: one may have been erased when it was no letter's.
        """

        def make(table: Table, operation_id: str) -> Rewrite | None:
            erased = ErasedKeys.of(Table.load(rows.location, self._fs).lineage())
            made = self._replaced(table, operation_id, "dead_letters", {"kind": "reload"}, erased)
            return made if made.added or made.removed else None

        self._rewrite(table, self._staged("dead_letters"), make)

    def _rewrite(self, table: Table, staged: Sequence[DataFile], make: MakeRewrite) -> int:
        """Commit; staged files that were added in another form, without erased keys, are taken away."""
        added: set[str] = set()

        def remember(table: Table, operation_id: str) -> Rewrite | None:
            made = make(table, operation_id)
            added.update(() if made is None else (file.name for file in made.added))
            return made

        version = rewrite(table.location, self._fs, remember)
        self._remove_staged(table, [file for file in staged if file.name not in added])
        return version or 0

    def _remove_staged(self, table: Table, files: Sequence[DataFile]) -> None:
        store_at(table.location, self._fs).remove_durably(file.name for file in files)

    def _staged(self, what: str) -> list[DataFile]:
        files = (result.files if what == "rows" else result.dead_letter_files for result in self._results)
        return [file for some in files for file in some]

    def _replaced(
        self, table: Table, operation_id: str, what: str, lineage: Mapping[str, Any], erased: ErasedKeys
    ) -> Rewrite:
        done = replace_ranges(
            table, operation_id, self._fs, ranges=self._plan.ranges, claimed=self._plan.replaced,
            staged=self._staged(what), erased=erased,
        )  # fmt: skip
        added = _counts(self._plan.replaced, self._results, what)
        self.removed_rows = done.removed_rows.total()
        absent = {
            partition: done.removed_rows[partition] + done.erased_rows[partition] - added[partition]
            for partition in {span.partition for span in self._plan.ranges}
        }
        return Rewrite(
            added=done.added,
            removed=done.removed,
            lineage={**lineage, "absent": list(absent_offsets(absent))},
        )


def _check_same_log(ledger: Ledger, topic_id: str, log: Mapping[int, LogOffsets]) -> None:
    """Raise what a load would without its options to go on: the offsets must mean what they meant to the table."""
    agreed = {partition: agreed_end(offsets, None) for partition, offsets in log.items()}
    next_ledger(ledger, topic_id, agreed, ahead={}, accept_recreated_topic=False, accept_truncated_log=False)


def _check_reloadable(table: Table, plan: ReloadPlan) -> None:
    """Raise ModeError where replacing ranges would not leave the table as the topic says."""
    if former_ledgers(table) and plan.ranges:
        raise ModeError(
            f"{table.location} has rows of former logs too, at offsets of their own: load into another table"
        )
    if mode_of(table) is Mode.UPSERT:
        ledger = ledger_of(table)
        known = [span for span in plan.ranges if span.partition in ledger.partitions]
        for span in known:
            if span.until_offset < ledger.partitions[span.partition].next_offset or plan.backfill:
                raise ModeError(
                    f"{table.location} has the newest record of each key: older ones can't be put in without those "
                    "that follow, and deleted ones would come back; reload up to the end, or into another table"
                )


def _verified(ranges: Iterable[OffsetRange], results: Iterable[TaskResult]) -> tuple[LoadedRange, ...]:
    return tuple(verified for span in ranges for verified in verify_results([span], list(_results_in(span, results))))


def _results_in(span: OffsetRange, results: Iterable[TaskResult]) -> Iterator[TaskResult]:
    for result in results:
        part = result.range
        if part.partition == span.partition and span.from_offset <= part.from_offset < span.until_offset:
            yield result


def _counts(ranges: Iterable[OffsetRange], results: Sequence[TaskResult], what: str) -> Counter[int]:
    """How many rows, or dead letters, of each partition were read in some ranges."""
    counts: Counter[int] = Counter()
    for span in ranges:
        counts[span.partition] += sum(getattr(result, what) for result in _results_in(span, results))
    return counts


def _unknown(ledger: Ledger, following: Mapping[int, LedgerEntry]) -> dict[int, LedgerEntry]:
    return {partition: entry for partition, entry in following.items() if partition not in ledger.partitions}
