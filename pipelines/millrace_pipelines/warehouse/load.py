"""One exactly-once load of a topic into its table (spec H1, H2, H4).

    ledger in the table ─┐
                         ├─ plan ─► Spark tasks: fetch, decode, write Parquet ─► verify ─► commit
    log ends of now ─────┘                                             dead letters first, then rows and ledger

A crash at any point leaves the table as it was, or with the whole load; files that no commit names are garbage.
Of two loads at once, one commits and the other raises StaleLedgerError, its files removed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from millrace.clock import Clock, SystemClock
from millrace.fs import FileSystem, OsFileSystem
from millrace_pipelines.spark.read import describe_topic, log_offsets, read_range
from millrace_pipelines.spark.session import spark_session
from millrace_pipelines.warehouse.dead_letters import commit_dead_letters, dead_letters_dir, first_unwritten
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.files import remove_files_of_load
from millrace_pipelines.warehouse.jobs import run_tasks
from millrace_pipelines.warehouse.ledger import ledger_of, swap
from millrace_pipelines.warehouse.open import LoadTables, open_tables
from millrace_pipelines.warehouse.plan import LoadPlan, OffsetRange, check_log_ends, plan_load, split_ranges
from millrace_pipelines.warehouse.progress import LoadListener, SilentListener, Step
from millrace_pipelines.warehouse.schema import read_payload_schema
from millrace_pipelines.warehouse.table import Table
from millrace_pipelines.warehouse.task import LoadSpec, TaskResult
from millrace_pipelines.warehouse.verify import LoadedRange, verify_results

MAX_RECORDS_PER_TASK = 250_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What to load where.

    Attributes:
        topic: The topic's name.
        table: The table's directory, made at the first load.
        bootstrap: HOST:PORT of a broker.
        master: Spark's master; None for all cores of this machine.
        schema: Path of the payload's declared schema; None for the table's own, or the raw envelope.
        max_records_per_task: Ranges are cut into tasks of at most so many offsets.
        accept_lost_offsets: Go on past offsets that retention deleted before they were loaded.
    """

    topic: str
    table: str
    bootstrap: str
    master: str | None = None
    schema: str | None = None
    max_records_per_task: int = MAX_RECORDS_PER_TASK
    accept_lost_offsets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load did; `version` is None where there was nothing new.

    `value_bytes` counts the records' values as read, `bytes` the data files as written, `seconds` the tasks and
    the commit without the start of a Spark session.
    """

    topic: str
    table: str
    rows: int = 0
    dead_letters: int = 0
    bytes: int = 0
    value_bytes: int = 0
    ranges: tuple[LoadedRange, ...] = ()
    lost: tuple[OffsetRange, ...] = ()
    tasks: int = 0
    seconds: float = 0.0
    version: int | None = None


class _Written(NamedTuple):
    """The tasks' answers, verified."""

    results: Sequence[TaskResult]
    ranges: Sequence[LoadedRange]


def load_topic(
    options: LoadOptions, *, spark: SparkSession | None = None, listener: LoadListener | None = None
) -> LoadReport:
    """Load everything that the topic has and the table doesn't, up to the end offsets of now.

    Args:
        options: What to load where.
        spark: A session to use; without one, a session of its own is started where there is something to load.
        listener: Follows the load.

    Raises:
        StaleLedgerError: Another load committed first; run again.
        WarehouseError: The load can't go on (see `warehouse.errors`).
        UnknownTopicError, ClientError: The cluster has no such topic, or can't be asked.
    """
    return _Load(options, listener or SilentListener(), OsFileSystem(), SystemClock()).run(spark)


class _Load:
    """One load, from its plan to its report."""

    def __init__(self, options: LoadOptions, listener: LoadListener, fs: FileSystem, clock: Clock) -> None:
        self._options = options
        self._listener = listener
        self._fs = fs
        self._clock = clock
        self._load_id = uuid.uuid4().hex

    def run(self, spark: SparkSession | None) -> LoadReport:
        options = self._options
        payload = None if options.schema is None else read_payload_schema(options.schema)
        description = describe_topic(options.bootstrap, options.topic)
        tables = open_tables(os.path.abspath(options.table), options.topic, description.topic_id, payload, self._fs)
        plan = self._plan(tables, description.partitions)
        nothing = LoadReport(topic=options.topic, table=options.table)
        if not plan.ranges and not plan.lost:
            return nothing
        self._listener.reached(Step.PLANNED)
        with nullcontext(spark) if spark else spark_session(f"load {options.topic}", options.master) as session:
            started_ms = self._clock.monotonic_ms()
            written = self._write(session, plan, tables)
            self._listener.reached(Step.WRITTEN)
            report = _report(nothing, plan, written)
            report = replace(report, seconds=(self._clock.monotonic_ms() - started_ms) / 1000)
            version = self._commit(tables, plan, written, report)
            self._listener.reached(Step.COMMITTED)
            return replace(report, version=version, seconds=(self._clock.monotonic_ms() - started_ms) / 1000)

    def _plan(self, tables: LoadTables, partitions: Sequence[int]) -> LoadPlan:
        """The ledgers were read before the logs' ends, so a log that ends below a ledger is truncated, not raced."""
        log = log_offsets(self._options.bootstrap, self._options.topic, partitions)
        if tables.dead_letters is not None:
            check_log_ends(ledger_of(tables.dead_letters), log)
        return plan_load(ledger_of(tables.rows), log, accept_lost_offsets=self._options.accept_lost_offsets)

    def _write(self, spark: SparkSession, plan: LoadPlan, tables: LoadTables) -> _Written:
        tasks = split_ranges(plan.ranges, self._options.max_records_per_task)
        spec = LoadSpec(
            load_id=self._load_id,
            topic=self._options.topic,
            table_dir=tables.rows.directory,
            dead_letters_dir=dead_letters_dir(tables.rows.directory),
            payload=tables.payload,
            dead_letters_from=first_unwritten(ledger_of(tables.dead_letters)) if tables.dead_letters else {},
        )
        with self._files_removed_on(BaseException, tables.rows, tables.dead_letters):
            results = run_tasks(
                spark,
                tasks,
                spec,
                partial(read_range, self._options.bootstrap),
                lambda done, records: self._listener.tasks_done(done, len(tasks), records),
            )
            return _Written(results, verify_results(plan.ranges, results))

    def _commit(self, tables: LoadTables, plan: LoadPlan, written: _Written, report: LoadReport) -> int:
        lineage = _lineage(self._load_id, report)
        if tables.dead_letters is not None:
            with self._files_removed_on(StaleLedgerError, tables.rows, tables.dead_letters):
                commit_dead_letters(tables.dead_letters, written.results, plan.following, lineage)
            self._listener.reached(Step.DEAD_LETTERS_COMMITTED)
        files = [result.rows_file for result in written.results if result.rows_file is not None]
        expected, transactions = swap(ledger_of(tables.rows), plan.following)
        with self._files_removed_on(StaleLedgerError, tables.rows):
            return tables.rows.commit(files, expected=expected, transactions=transactions, lineage=lineage)

    @contextmanager
    def _files_removed_on(self, kind: type[BaseException], *tables: Table | None) -> Iterator[None]:
        """Take this load's files away where it is certain that it commits nothing to these tables any more."""
        try:
            yield
        except kind:
            for table in tables:
                if table is not None:
                    remove_files_of_load(table.directory, self._load_id, self._fs)
            raise


def _report(nothing: LoadReport, plan: LoadPlan, written: _Written) -> LoadReport:
    files = [result.rows_file for result in written.results if result.rows_file is not None]
    return replace(
        nothing,
        rows=sum(span.rows for span in written.ranges),
        dead_letters=sum(span.dead_letters for span in written.ranges),
        bytes=sum(file.size_bytes for file in files),
        value_bytes=sum(result.value_bytes for result in written.results),
        ranges=tuple(written.ranges),
        lost=plan.lost,
        tasks=len(written.results),
    )


def _lineage(load_id: str, report: LoadReport) -> dict[str, Any]:
    """What a commit says of itself in the table's history."""
    facts = asdict(report) | {"load_id": load_id, "lost": [span._asdict() for span in report.lost]}
    return {name: fact for name, fact in facts.items() if name not in ("table", "version")}
