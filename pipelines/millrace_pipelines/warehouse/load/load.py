"""One exactly-once load of a topic into its table (spec H1, H2, H4).

    ledger in the table ─┐
                         ├─ plan ─► Spark tasks: fetch, decode, write Parquet ─► verify ─► commit ─► publish
    log ends of now ─────┘                                             dead letters first, then rows and ledger

A crash at any point leaves the table as it was, or with the whole load; files that no commit names are garbage.
Of two loads at once, one commits and the other raises StaleLedgerError, its files removed. What is published after the
commit (the rows of skipped ranges, the group's offsets) follows from the table, and is made up for by the next load.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pyspark.sql import SparkSession

from millrace.clock import Clock, SystemClock
from millrace.fs import FileSystem, OsFileSystem
from millrace.records.batch import NO_LEADER_EPOCH
from millrace_pipelines.spark.choices import Isolation, Reader
from millrace_pipelines.spark.errors import LogTruncatedError, TopicRecreatedError
from millrace_pipelines.spark.read import (
    LogOffsets,
    TopicDescription,
    TopicSource,
    describe_topic,
    epoch_ends,
    log_offsets,
    read_range,
)
from millrace_pipelines.spark.session import cores_of, spark_session
from millrace_pipelines.warehouse.dead_letters.letters import known_letters
from millrace_pipelines.warehouse.delta.compression import loaded_compression
from millrace_pipelines.warehouse.delta.files import remove_files_of_load
from millrace_pipelines.warehouse.delta.leases import lease
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.store import store_at
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import ModeError, StaleLedgerError
from millrace_pipelines.warehouse.keys.counts import UpsertCounts
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.generation import (
    AgreedEnd,
    LedgerChange,
    agreed_end,
    begin_ledger,
    next_ledger,
)
from millrace_pipelines.warehouse.ledger.ledger import Ledger, ledger_of, swap
from millrace_pipelines.warehouse.ledger.plan import LoadPlan, plan_load, records_per_task, split_ranges
from millrace_pipelines.warehouse.ledger.skipped import count_skips, publish_skipped
from millrace_pipelines.warehouse.load.commit_dead_letters import commit_dead_letters
from millrace_pipelines.warehouse.load.jobs import run_tasks
from millrace_pipelines.warehouse.load.kafka_reader import run_kafka_tasks
from millrace_pipelines.warehouse.load.lineage import lineage_of_load
from millrace_pipelines.warehouse.load.options import LoadOptions, LoadReport
from millrace_pipelines.warehouse.load.progress import LoadListener, SilentListener, Step
from millrace_pipelines.warehouse.load.published_offsets import commit_group, group_name
from millrace_pipelines.warehouse.load.task import LoadSpec, TaskResult
from millrace_pipelines.warehouse.load.verify import LoadedRange, verify_results, with_epochs
from millrace_pipelines.warehouse.payload.schema import PayloadSchema, read_payload_schema
from millrace_pipelines.warehouse.tables.choices import Mode
from millrace_pipelines.warehouse.tables.mode import mode_of
from millrace_pipelines.warehouse.tables.open import LoadTables, open_tables


class _Written(NamedTuple):
    """The tasks' answers, verified."""

    results: Sequence[TaskResult]
    ranges: Sequence[LoadedRange]


def load_topic(
    options: LoadOptions, *, spark: SparkSession | None = None, listener: LoadListener | None = None
) -> LoadReport:
    """Load what the topic has and the table doesn't, up to the end offsets of now.

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
        self._location = store_at(options.table, fs).location
        self._source = TopicSource(options.bootstrap, options.topic, Isolation(options.isolation))
        self._listener = listener
        self._fs = fs
        self._clock = clock
        self._load_id = uuid.uuid4().hex

    def run(self, spark: SparkSession | None) -> LoadReport:
        options = self._options
        payload = None if options.schema is None else read_payload_schema(options.schema)
        description = describe_topic(self._source)
        tables = open_tables(
            self._location, options.topic, description.topic_id, payload, self._fs,
            mode=options.mode, compression=options.compression,
        )  # fmt: skip
        publish_skipped(tables.rows, self._fs)
        log = log_offsets(self._source, description.partitions)
        tables = self._settled(tables, description, log, payload)
        plan = plan_load(
            ledger_of(tables.rows),
            log,
            accept_lost_offsets=options.accept_lost_offsets,
            max_records=options.max_records_per_run,
        )
        report = LoadReport(topic=options.topic, table=options.table, lost=plan.lost, lag=plan.lag)
        if plan.ranges or plan.lost:
            self._listener.reached(Step.PLANNED)
            with (
                nullcontext(spark) if spark else self._session() as session,
                lease(self._location, self._load_id, self._fs),
            ):
                report = self._write_and_commit(session, tables, description, plan, report)
        return self._publish(report)

    def _session(self) -> AbstractContextManager[SparkSession]:
        return spark_session(f"load {self._options.topic}", self._options.master, self._options.spark_settings)

    def _settled(
        self,
        tables: LoadTables,
        description: TopicDescription,
        log: Mapping[int, LogOffsets],
        payload: PayloadSchema | None,
    ) -> LoadTables:
        """The tables at the ledger of this topic and this log: the present one, or a new one where that is accepted.

        The ledgers were read before the logs' ends, so a log that ends below a ledger is truncated, not raced.
        """
        ledger = ledger_of(tables.rows)
        ahead = {} if tables.dead_letters is None else ledger_of(tables.dead_letters).partitions
        change = next_ledger(
            ledger,
            description.topic_id,
            {}
            if ledger.topic_id != description.topic_id
            else self._agreed_ends(ledger, log, description.leader_epochs),
            ahead={partition: entry.next_offset for partition, entry in ahead.items()},
            accept_recreated_topic=self._options.accept_recreated_topic,
            accept_truncated_log=self._options.accept_truncated_log,
        )
        if change is not None:
            _check_appended(tables.rows)
            begin_ledger(tables.rows, change, load_id=self._load_id, time_ms=self._clock.now_ms())
            ledger = change.ledger
        if tables.dead_letters is not None and ledger_of(tables.dead_letters).name != ledger.name:
            follow = LedgerChange(replace(ledger, partitions={}), ())
            begin_ledger(tables.dead_letters, follow, load_id=self._load_id, time_ms=self._clock.now_ms())
        elif change is None:
            return tables
        return open_tables(self._location, ledger.topic, ledger.topic_id, payload, self._fs)

    def _agreed_ends(
        self, ledger: Ledger, log: Mapping[int, LogOffsets], leader_epochs: Mapping[int, int]
    ) -> dict[int, AgreedEnd]:
        known = {
            partition: entry.leader_epoch
            for partition, entry in ledger.partitions.items()
            if entry.leader_epoch != NO_LEADER_EPOCH and partition in log
        }
        ends = epoch_ends(self._source, known) if known else {}
        older = {  # the leader doesn't know the epoch either; metadata alone may lag
            partition
            for partition, epoch in known.items()
            if partition not in ends and NO_LEADER_EPOCH < leader_epochs.get(partition, epoch) < epoch
        }
        newer = {partition for partition, epoch in known.items() if leader_epochs.get(partition, epoch) > epoch}
        return {
            partition: agreed_end(
                offsets,
                ends.get(partition),
                has_older_epoch=partition in older,
                has_newer_epoch=partition in newer,
            )
            for partition, offsets in log.items()
        }

    def _write_and_commit(
        self,
        spark: SparkSession,
        tables: LoadTables,
        planned: TopicDescription,
        plan: LoadPlan,
        report: LoadReport,
    ) -> LoadReport:
        started_ms = self._clock.monotonic_ms()

        def seconds() -> float:
            return (self._clock.monotonic_ms() - started_ms) / 1000

        with self._files_removed_on(BaseException, tables.rows, tables.dead_letters):
            written = self._write(spark, plan, tables)
            self._check_same_logs(planned, plan)
        self._listener.reached(Step.WRITTEN)
        report = _counted(replace(report, load_id=self._load_id, seconds=seconds()), written)
        version, upserted = self._commit(tables, plan, written, report)
        self._listener.reached(Step.COMMITTED)
        return replace(report, version=version, upserted=upserted, seconds=seconds())

    def _write(self, spark: SparkSession, plan: LoadPlan, tables: LoadTables) -> _Written:
        ledger = ledger_of(tables.rows)
        spec = LoadSpec(
            load_id=self._load_id,
            topic=self._options.topic,
            table=tables.rows.location,
            dead_letters_table=dead_letters_dir(tables.rows.location),
            payload=tables.payload,
            known_letters=known_letters(tables.dead_letters, ledger) if tables.dead_letters else {},
            ledger=ledger.name,
            compression=loaded_compression(tables.rows.configuration),
        )
        results = self._run(spark, plan, spec)
        return _Written(results, verify_results(plan.ranges, results))

    def _run(self, spark: SparkSession, plan: LoadPlan, spec: LoadSpec) -> list[TaskResult]:
        max_records = records_per_task(plan.ranges, cores_of(spark), self._options.max_records_per_task)
        tasks = split_ranges(plan.ranges, max_records)

        def on_progress(done: int, records: int) -> None:
            self._listener.tasks_done(done, len(tasks), records)

        if Reader(self._options.reader) is Reader.SPARK_KAFKA:
            return run_kafka_tasks(
                spark, plan.ranges, spec, self._source, max_records_per_task=max_records, on_progress=on_progress
            )
        return run_tasks(spark, tasks, spec, partial(read_range, self._source), on_progress)

    def _check_same_logs(self, planned: TopicDescription, plan: LoadPlan) -> None:
        """What the tasks read must be of the topic, and of the logs, that the plan was made for.

        A log whose leader epoch has risen since may have been cut and have grown again under the tasks.
        """
        topic, found = self._options.topic, describe_topic(self._source)
        if found.topic_id != planned.topic_id:
            raise TopicRecreatedError(
                f"topic {topic} was deleted and created again while it was loaded: its id is {found.topic_id}, it was "
                f"{planned.topic_id}; nothing was committed"
            )
        risen = {
            partition: epoch
            for partition, epoch in planned.leader_epochs.items()
            if NO_LEADER_EPOCH < epoch < found.leader_epochs.get(partition, epoch)
        }
        for partition, end_offset in (epoch_ends(self._source, risen) if risen else {}).items():
            if end_offset < plan.following[partition].next_offset:
                raise LogTruncatedError(
                    f"topic {topic}, partition {partition}: the log was cut at offset {end_offset} while it was "
                    "loaded; nothing was committed"
                )

    def _commit(
        self, tables: LoadTables, plan: LoadPlan, written: _Written, report: LoadReport
    ) -> tuple[int, UpsertCounts | None]:
        ledger = ledger_of(tables.rows)
        lineage = lineage_of_load(self._options, ledger, report, self._clock.now_ms())
        following = with_epochs(plan.following, written.results)
        if tables.dead_letters is not None:
            with self._files_removed_on(StaleLedgerError, tables.rows, tables.dead_letters):
                commit_dead_letters(tables.dead_letters, written.results, following, lineage)
            self._listener.reached(Step.DEAD_LETTERS_COMMITTED)
        expected, transactions = swap(ledger, following)
        if report.lost:
            counted, counts = count_skips(tables.rows)
            expected, transactions = expected | counted, transactions | counts
        files = [file for result in written.results for file in result.files]
        if mode_of(tables.rows) is Mode.UPSERT:
            upsert = Upsert(
                files, self._fs, expected=expected, transactions=transactions, lineage=lineage,
                accept_keyless=self._options.accept_keyless_records,
            )  # fmt: skip
            try:
                return upsert.commit(tables.rows.location)
            finally:
                remove_files_of_load(self._location, self._load_id, self._fs)
        with self._files_removed_on(StaleLedgerError, tables.rows):
            return tables.rows.commit(files, expected=expected, transactions=transactions, lineage=lineage), None

    def _publish(self, report: LoadReport) -> LoadReport:
        """Tell others what the table says now."""
        table = Table.load(self._location, self._fs)
        publish_skipped(table, self._fs)
        entries = ledger_of(table).partitions
        if not self._options.commit_group or not entries:
            return report
        group = group_name(table) if self._options.group is None else self._options.group
        error = commit_group(self._options.bootstrap, group, self._options.topic, entries)
        self._listener.reached(Step.PUBLISHED)
        return replace(report, group=group, group_error=error)

    @contextmanager
    def _files_removed_on(self, kind: type[BaseException], *tables: Table | None) -> Iterator[None]:
        """Take this load's files away where it is certain that it commits nothing to these tables any more."""
        try:
            yield
        except kind:
            for table in tables:
                if table is not None:
                    remove_files_of_load(table.location, self._load_id, self._fs)
            raise


def _check_appended(table: Table) -> None:
    """Raise ModeError where rows of a former ledger would be held against records of the next, by their offsets."""
    if mode_of(table) is Mode.UPSERT:
        raise ModeError(
            f"{table.location} has the newest record of each key: rows of the former log may have higher offsets than "
            "newer records of this one, which would be left out; load into another table"
        )


def _counted(report: LoadReport, written: _Written) -> LoadReport:
    files = [file for result in written.results for file in result.files]
    return replace(
        report,
        rows=sum(span.rows for span in written.ranges),
        dead_letters=sum(span.dead_letters for span in written.ranges),
        late=sum(result.late for result in written.results),
        bytes=sum(file.size_bytes for file in files),
        value_bytes=sum(result.value_bytes for result in written.results),
        ranges=tuple(written.ranges),
        tasks=len(written.results),
    )
