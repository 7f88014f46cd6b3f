"""The loader of offset ranges, which loads and reloads share: it reads what a plan names, and has it committed.

    look ─ the caller's plan ─► open ─► Spark tasks: fetch, decode, write Parquet ─► verify ─► the caller's commit
                                                                                     publish ◄─┘

Looking and planning change nothing; opening creates the tables that are missing, and changes others. What is found
before is the topic, its tables, and with them the ledger, and then the ends of the logs: so if a log ends below the
ledger, no load has moved the ledger meanwhile, but the log was truncated, or a former leader has answered. All plans
are made from this alone, those of loads and reloads and those of their dry runs.

A crash at any point leaves each table as it was, or with the whole commit; files that no commit names are garbage. Of
two operations that exclude each other one commits, and the other raises StaleLedgerError, its files removed. What is
published after the commit (the rows of skipped ranges, the group's offsets) follows from the table, so the next load
publishes what this one could not. The table holds the truth: a group's offsets are never read back, and an error of
their commit is reported instead of raised.

Before a load and while it reads, the topic's logs are compared with those that its table was loaded from. The cluster
is asked three things: the topic's id, the offsets of each partition with the epoch of the leader that gave them, and
where the log ends in the leader epoch of the last batch that was loaded (KIP-101). Only the last one shows that a log
was cut if it has grown past the ledger again.

The epoch of a leader is the one that came with its offsets, since metadata may name an older or a newer one. A former
leader that has not heard of its successor lacks the successor's records, and yet its log was not cut. So before a log
counts as cut, all brokers are asked who leads it, and the newest leader's log is the one that counts.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import SparkSession

from millrace.client import Cluster, Groups
from millrace.client.groups import GroupOffset
from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace.fs import FileSystem
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.tracing import Tracing
from millrace_pipelines.spark.brokers import (
    Brokers,
    LogOffsets,
    TopicDescription,
    TopicSource,
    brokers_of,
    describe_topic,
    epoch_ends,
    is_topic_compacted,
    log_offsets,
)
from millrace_pipelines.spark.choices import Reader
from millrace_pipelines.spark.errors import Accept, LogTruncatedError, OffsetsLostError, TopicRecreatedError
from millrace_pipelines.spark.read import ReadBlock, read_range, read_range_on
from millrace_pipelines.spark.session import SharedSession, spark_session
from millrace_pipelines.warehouse.choices import loaded_compression
from millrace_pipelines.warehouse.dead_letters import Offsets
from millrace_pipelines.warehouse.errors import NOT_COMMITTED, LoadFailedError
from millrace_pipelines.warehouse.formats import address_of, load_if_there, load_table
from millrace_pipelines.warehouse.ledger.ledger import (
    AgreedEnd,
    Ledger,
    LedgerChange,
    LedgerEntry,
    agreed_end,
    begin_ledger,
    check_ledger,
    cut_partitions,
    ledger_of,
    next_ledger,
    publish_skipped,
    skipped_location,
)
from millrace_pipelines.warehouse.ledger.plan import (
    LostRange,
    RangePlan,
    shown,
)
from millrace_pipelines.warehouse.load.commit import Append, Committed, Replacement
from millrace_pipelines.warehouse.load.jobs import TableTasks, run_alone
from millrace_pipelines.warehouse.load.options import AcceptOptions, LoadListener, LoadOptions, Step
from millrace_pipelines.warehouse.load.report import Written, damaged_ranges, exact_gaps, missing_ranges, verify_results
from millrace_pipelines.warehouse.load.task import LoadSpec, TaskResult
from millrace_pipelines.warehouse.payload.schema import declared_schema
from millrace_pipelines.warehouse.registration.targets import check_target, register
from millrace_pipelines.warehouse.rewrite import Errors, files_removed_on
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.lease import Lease, NoLease, Progress
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import NO_IDS
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.tables.open import (
    FoundTables,
    LoadTable,
    LoadTables,
    look_at_tables,
    made_dead_letters,
    make_tables,
)


def ledger_change(
    source: TopicSource,
    tables: FoundTables,
    description: TopicDescription,
    log: Mapping[int, LogOffsets],
    accepted: AcceptOptions,
) -> LedgerChange | None:
    """Returns the change to the new ledger with which the table has to go on; None where it keeps the present one.

    Raises:
        TopicRecreatedError: The topic was deleted and created again, and that is not accepted.
        LogTruncatedError: A log has less, or something else, than was loaded of it, and that is not accepted.
        ClientError: A log seems to be cut, and not all brokers can be asked who leads it.
    """
    ledger = tables.ledger
    entries = {} if tables.dead_letters is None else ledger_of(tables.dead_letters).partitions
    ahead = {partition: entry.next_offset for partition, entry in entries.items()}
    is_same_topic = ledger.topic_id == description.topic_id
    return next_ledger(
        ledger,
        description.topic_id,
        _checked_ends(source, ledger, log, ahead) if is_same_topic else {},
        ahead=ahead,
        accept_recreated_topic=accepted.accept_recreated_topic,
        accept_truncated_log=accepted.accept_truncated_log,
    )


def _checked_ends(
    source: TopicSource, ledger: Ledger, log: Mapping[int, LogOffsets], ahead: Mapping[int, int]
) -> dict[int, AgreedEnd]:
    """Returns up to where each log agrees with the table; asks the newest leaders again where a log seems cut."""
    with brokers_of(source) as brokers:
        ends = _agreed_ends(brokers, source.topic, ledger, log)
        cut = cut_partitions(ledger, ends, ahead)
        if cut:
            ends |= _agreed_ends(brokers, source.topic, ledger, brokers.newest_log_offsets(source.topic, cut))
        return ends


def _agreed_ends(brokers: Brokers, topic: str, ledger: Ledger, log: Mapping[int, LogOffsets]) -> dict[int, AgreedEnd]:
    known = {
        partition: entry.leader_epoch
        for partition, entry in ledger.partitions.items()
        if entry.leader_epoch != NO_LEADER_EPOCH and partition in log
    }
    ends = brokers.epoch_ends(topic, known)
    older = {  # the leader that knows no such epoch may be another one than the leader that gave the offsets
        partition
        for partition, epoch in known.items()
        if partition not in ends and NO_LEADER_EPOCH < log[partition].leader_epoch < epoch
    }
    newer = {partition for partition, epoch in known.items() if log[partition].leader_epoch > epoch}
    return {
        partition: agreed_end(
            offsets, ends.get(partition), has_older_epoch=partition in older, has_newer_epoch=partition in newer
        )
        for partition, offsets in log.items()
    }


def check_same_logs(source: TopicSource, planned: TopicDescription, plan: RangePlan) -> None:
    """Checks that topic and logs were still those of the plan when the tasks read them.

    A log whose leader epoch has risen since its offsets were told may have been cut and have grown again while the
    tasks read it.

    Raises:
        TopicRecreatedError: The topic was deleted and created again meanwhile.
        LogTruncatedError: A log was cut below what the plan reads or relies on.
    """
    topic, found = source.topic, describe_topic(source)
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
    reached = _reached(plan)
    for partition, end_offset in (epoch_ends(source, risen) if risen else {}).items():
        if end_offset < reached.get(partition, 0):
            raise LogTruncatedError(
                f"topic {topic}, partition {partition}: the log was cut at offset {end_offset} while it was "
                "loaded; nothing was committed"
            )


def _reached(plan: RangePlan) -> dict[int, int]:
    """Returns, by partition, the offset up to which the plan reads the log or has its records already."""
    read = {offset_range.partition: offset_range.until_offset for offset_range in sorted(plan.ranges)}
    return read | {partition: entry.next_offset for partition, entry in plan.following.items()}


ID_LETTERS = 8
RunTasks = Callable[[SparkSession, TableTasks], list[TaskResult]]
"""Runs what a load asks for, and returns the results of its tasks; raises LoadFailedError."""
ReadFrom = Callable[[TopicSource, int, int, int], Iterator[ReadBlock]]
NO_DEAD_LETTERS: Mapping[int, Offsets] = MappingProxyType({})


class LoadInputs(NamedTuple):
    """The facts from which a load is planned: the topic, its log offsets and the tables.

    `description` has the epochs of the leaders that gave the offsets.
    """

    description: TopicDescription
    log: Mapping[int, LogOffsets]
    tables: FoundTables


def look(
    options: LoadOptions, fs: FileSystem, *, load: LoadTable = load_table, access: Access = Access.APPEND
) -> LoadInputs:
    """Reads what a load is planned from: the topic, its log offsets and the tables.

    Raises:
        UnknownTopicError, ClientError: The cluster has no such topic, or can't be asked.
        WarehouseError: The tables can't be used (`look_at_tables` names the errors).
    """
    address = address_of(options.table, fs)
    schema = declared_schema(options.schema, options.columns)
    description = describe_topic(options.source)
    tables = look_at_tables(
        address, options.topic, description.topic_id, schema, fs,
        mode=options.mode, deletion_vectors=options.deletion_vectors, compression=options.compression,
        load=load, access=access,
    )  # fmt: skip
    if (skipped := load_if_there(skipped_location(address), fs)) is not None:
        skipped.check_access(Access.APPEND)
    log = log_offsets(options.source, description.partitions)
    return LoadInputs(description._replace(leader_epochs=_planned_epochs(log, tables.ledger)), log, tables)


def _planned_epochs(log: Mapping[int, LogOffsets], ledger: Ledger) -> dict[int, int]:
    """Returns the epochs of the leaders that told the offsets, without leaders that lack offsets of the table."""
    return {
        partition: offsets.leader_epoch
        for partition, offsets in log.items()
        if (ledger.next_offset(partition) or 0) <= offsets.log_end
    }


def group_name(table: Table) -> str:
    """Returns a consumer group's name for a table, `millrace-FOLDER-ID`, with the first letters of the table's id."""
    return f"millrace-{os.path.basename(table.address.rstrip('/'))}-{table.id[:ID_LETTERS]}"


def commit_group(source: TopicSource, group: str, entries: Mapping[int, LedgerEntry]) -> str | None:
    """Commits the table's next offsets to the broker under a group's name; returns why that failed, or None."""
    offsets = {(source.topic, partition): GroupOffset(entry.next_offset, "") for partition, entry in entries.items()}
    try:
        with Cluster(source.bootstrap, security=source.security.read()) as cluster:
            Groups(cluster).commit(group, offsets)
    except MillraceError as error:
        return str(error)
    return None


class Opened(NamedTuple):
    """The topic as it was when the load was planned, and the tables, created or evolved as the plan needs them."""

    description: TopicDescription
    tables: LoadTables


class Published(NamedTuple):
    """The group to which offsets were committed, None for none, and why that failed, None where it did not.

    `register_error` says why the table could not be entered in the catalog in which it is to be found.
    """

    group: str | None = None
    group_error: str | None = None
    register_error: str | None = None


class RangeLoader:
    """Carries out one plan: reads its ranges and commits them, under one id that is in the names of its files."""

    def __init__(
        self,
        options: LoadOptions,
        listener: LoadListener,
        fs: FileSystem,
        clock: Clock,
        tracing: Tracing | None = None,
        *,
        run: RunTasks = run_alone,
    ) -> None:
        if options.register is not None:
            check_target(options.register, options.table)
        self.options = options
        self.load_id = uuid.uuid4().hex
        self.fs = fs
        self.clock = clock
        self.tracing = tracing
        self._listener = listener
        self._run = run
        self._address = address_of(options.table, fs)
        self._started_ms = clock.monotonic_ms()
        self._lease: Lease = NoLease()

    def open(self, found: LoadInputs, change: LedgerChange | None = None) -> Opened:
        """Creates or evolves the tables for the plan, and makes sure that they have the ledger it was made from.

        Raises:
            StaleLedgerError: Another load came between; run again.
            WarehouseError: The tables can't be made (`make_tables` names the errors).
        """
        tables, ledger = make_tables(found.tables, self.fs), found.tables.ledger
        check_ledger(tables.rows, ledger)
        if change is not None:
            ledger = change.ledger
            self._begin(tables.rows, change)
            check_ledger(tables.rows, ledger)
        if tables.dead_letters is not None and ledger_of(tables.dead_letters).name != ledger.name:
            self._begin(tables.dead_letters, LedgerChange(replace(ledger, partitions={}), ()))
        publish_skipped(tables.rows, self.fs)
        return Opened(found.description, tables)

    def _begin(self, table: Table, change: LedgerChange) -> None:
        begin_ledger(table, change, load_id=self.load_id, time_ms=self.clock.now_ms())

    @contextmanager
    def working(self, spark: SparkSession | SharedSession | None, opened: Opened, what: str) -> Iterator[SparkSession]:
        """Holds the lease on the table in the context; yields `spark`, or a new session, named by `what` and topic."""
        options, location = self.options, opened.tables.rows.location
        self._listener.reached(Step.PLANNED)
        given = spark.get() if isinstance(spark, SharedSession) else spark
        own = spark_session(f"{what} {options.topic}", options.master, options.spark_settings)
        with nullcontext(given) if given else own as session, lease(location, self.load_id, self.fs) as held:
            self._lease = held
            self._started_ms = self.clock.monotonic_ms()
            yield session

    def seconds(self) -> float:
        """Returns the seconds since the Spark session was ready."""
        return (self.clock.monotonic_ms() - self._started_ms) / 1000

    def write(
        self,
        spark: SparkSession,
        opened: Opened,
        plan: RangePlan,
        known: Mapping[int, Offsets] = NO_DEAD_LETTERS,
        *,
        may_accept_missing: bool = False,
    ) -> Written:
        """Has Spark tasks write the plan's ranges, and verifies that their results account for each offset.

        Args:
            spark: Where the tasks run.
            opened: The tables, and the topic that the plan was made for.
            plan: What to read.
            known: By partition, offsets whose dead letters are in their table already, and stay there.
            may_accept_missing: Whether `accept_lost_offsets` goes on where the log has lost offsets, or holds them in
                damaged batches, too.

        Raises:
            LoadFailedError: A task failed at all of its attempts, offsets are not accounted for, or they seem lost and
                are not.
            OffsetsLostError: The log has lost offsets, and that is not accepted.
            TopicRecreatedError, LogTruncatedError: The tasks read another log than the plan was made for.
        """
        accept = may_accept_missing and self.options.accept_lost_offsets
        with self._files_removed_on(BaseException, opened.tables):
            asked = self._asked(opened.tables, plan, known, read_range_on if accept else read_range)
            results = self._run(spark, asked)
            written = self._verified(plan, results, may_accept=may_accept_missing)
            check_same_logs(self.options.source, opened.description, plan)
            written = written.keeping(store_at(opened.tables.rows.location, self.fs), self.load_id)
            self._listener.reached(Step.WRITTEN)
        return written

    def _verified(self, plan: RangePlan, results: Sequence[TaskResult], *, may_accept: bool) -> Written:
        source = self.options.source
        is_compacted = any(result.absent for result in results) and is_topic_compacted(source)
        ranges = verify_results(plan.ranges, results, is_compacted=is_compacted)
        missing = [] if is_compacted else missing_ranges(results)
        if missing and not (may_accept and self.options.accept_lost_offsets):
            option = Accept.LOST_OFFSETS if may_accept else None
            raise OffsetsLostError(_missing_message(source.topic, missing, option), option)
        with brokers_of(source) as brokers:
            hidden = [
                offset_range
                for offset_range in exact_gaps(results if missing else ())
                if brokers.serves(source.topic, *offset_range)
            ]
        if hidden:
            raise LoadFailedError(
                f"topic {source.topic}: the log has records at offsets that a read from before passed over "
                f"({shown(hidden)}): a batch's base offset is damaged, and what is behind it would be lost; "
                "`millrace verify` on the broker's folder names the byte"
            )
        return Written(tuple(results), tuple(ranges), (*missing, *damaged_ranges(results)))

    def commit(self, tables: LoadTables, commit: Append | Replacement) -> Committed:
        """Commits the dead letters and then the rows; raises StaleLedgerError where another commit came first."""
        dead_letters = tables.dead_letters
        if dead_letters is None and commit.written.dead_letter_files:
            dead_letters = made_dead_letters(tables.rows, self.fs)
        if dead_letters is not None:
            with self._files_removed_on(NOT_COMMITTED, tables):
                commit.commit_dead_letters(dead_letters)
            self._listener.reached(Step.DEAD_LETTERS_COMMITTED)
        with files_removed_on(NOT_COMMITTED, [tables.rows.location], self.load_id, self.fs):
            committed = commit.commit_rows()
        self._listener.reached(Step.COMMITTED)
        return committed

    def publish(self) -> Published:
        """Publishes what follows from the table: skipped ranges and, if asked to, a group's offsets, and an entry."""
        options, table = self.options, load_table(self._address, self.fs)
        publish_skipped(table, self.fs)
        register_error = None if options.register is None else self._register(options.register)
        entries = ledger_of(table).partitions
        if not options.commit_group or not entries:
            return Published(register_error=register_error)
        group = group_name(table) if options.group is None else options.group
        error = commit_group(options.source, group, entries)
        self._listener.reached(Step.PUBLISHED)
        return Published(group, error, register_error)

    def _register(self, target: str) -> str | None:
        """Enters the table in another engine's catalog; returns why that failed, or None."""
        try:
            register(self._address, target, self.fs)
        except MillraceError as error:
            return str(error)
        return None

    def _asked(self, tables: LoadTables, plan: RangePlan, known: Mapping[int, Offsets], read: ReadFrom) -> TableTasks:
        options = self.options
        spec = LoadSpec(
            load_id=self.load_id,
            topic=options.topic,
            table=tables.rows.location,
            dead_letters_table=_dead_letters_location(tables),
            payload=tables.payload,
            known_dead_letters=known,
            ledger=ledger_of(tables.rows).name,
            compression=loaded_compression(tables.rows.configuration),
            field_ids=tables.rows.field_ids,
            dead_letter_ids=NO_IDS if tables.dead_letters is None else tables.dead_letters.field_ids,
            is_traced=self.tracing is not None,
        )
        started_ms = self.clock.now_ms()

        def on_progress(done: int, total: int, records: int) -> None:
            self._lease.note(Progress(started_ms, done, total, records))
            self._listener.tasks_done(done, total, records)

        return TableTasks(
            spec=spec,
            source=options.source,
            ranges=plan.ranges,
            reader=Reader(options.reader),
            read=partial(read, options.source),
            max_records_per_task=options.max_records_per_task,
            on_progress=on_progress,
        )

    def _files_removed_on(self, kind: Errors, tables: LoadTables) -> AbstractContextManager[None]:
        """Removes this load's files from both tables on an error after which it can't commit them any more."""
        locations = [tables.rows.location, _dead_letters_location(tables)]
        return files_removed_on(kind, locations, self.load_id, self.fs)


def _dead_letters_location(tables: LoadTables) -> str:
    """Returns where the files of the dead letters are, or will be if the load makes their table at its end."""
    dead_letters = tables.dead_letters
    return dead_letters_dir(tables.rows.location) if dead_letters is None else dead_letters.location


def _missing_message(topic: str, missing: Iterable[LostRange], option: Accept | None) -> str:
    way_on = (
        "choose the offsets before and after them, for the rows that the table has of them stay"
        if option is None
        else f"{option.flag} goes on without them and says so in the table's history"
    )
    return (
        f"topic {topic}: the log has no record at offsets that were to be loaded ({shown(missing)}), and the topic is "
        "not compacted: batches are lost or damaged, or the topic was compacted before. `millrace verify` tells more; "
        f"{way_on}"
    )
