"""The output of a downstream job: a table, with the offsets that it has processed in its own log.

    app id                                       version
    millrace/downstream/<topic id>/<partition>   next offset: the first one that is not processed

A batch is one commit: files, and the next offsets of its partitions. The commit is a compare-and-swap on the offsets
that it builds on, so a record is processed once, whoever believes to own its partition. A worker whose partition moved
on meanwhile leaves out what is processed, and makes the rest again on the rows that are there now. Commits of different
partitions that meet are tried again.

A state has one file for each partition of the topic, in the folder `partition=<n>` where the format has such folders; a
commit replaces the files of its partitions. Rows that are appended have no such folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from millrace.client.consumer import Message
from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace_pipelines.downstream.job import PARTITION, Form, JobError, MicroBatchJob, columns_text, from_offset
from millrace_pipelines.machine import DISK
from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import TopicRecreatedError
from millrace_pipelines.warehouse.errors import LedgerError, StaleLedgerError
from millrace_pipelines.warehouse.formats import load_or_create, load_table, load_to_write
from millrace_pipelines.warehouse.rewrite import (
    CurrentFile,
    Rewrite,
    current_files,
    file_schema,
    read_rows,
    rewrite,
)
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.columns import as_schema
from millrace_pipelines.warehouse.table.files import DataFile, DataFileWriter
from millrace_pipelines.warehouse.table.table import Table

TOPIC_PROPERTY = "millrace.downstream.topic"
TOPIC_ID_PROPERTY = "millrace.downstream.topicId"
CONTENT_PROPERTY = "millrace.downstream.content"
COMMIT_ATTEMPTS = 20
LINEAGE_KIND = "micro-batch"
RETENTION = "retention"

again_when_stale = retry(
    retry=retry_if_exception_type(StaleLedgerError),
    stop=stop_after_attempt(COMMIT_ATTEMPTS),
    wait=wait_random_exponential(multiplier=0.02, max=1),
    reraise=True,
)


class ProcessedRange(NamedTuple):
    """A range of one partition that a commit processed, `until_offset` not included, and its number of records."""

    partition: int
    from_offset: int
    until_offset: int
    records: int = 0
    reason: str | None = None


class Committed(NamedTuple):
    """The version and ranges of a commit; `version` is None where other processes had processed all of them."""

    version: int | None
    ranges: tuple[ProcessedRange, ...]


class Output:
    """A job's output table, for the topic with one id; each call reads the newest version. Thread-safe.

    Raises:
        WarehouseError: The table can't be read or written.
    """

    def __init__(self, location: str, job: MicroBatchJob, topic_id: str, fs: FileSystem, clock: Clock) -> None:
        self.location = location
        self._job = job
        self._topic_id = topic_id
        self._fs = fs
        self._clock = clock
        self._access = Access.REMOVE if job.form is Form.STATE else Access.APPEND

    @again_when_stale
    def prepare(self, log: Mapping[int, LogOffsets]) -> None:
        """Creates the output table if it is missing, and gives each new partition its first offset.

        That is where the log starts, or 0 if other partitions have an offset, as it was added later then.

        Raises:
            JobError: The table is another job's, or of other columns.
            TopicRecreatedError: The topic was deleted and created again.
            LedgerError: The table has rows, but no offsets.
        """
        job = self._job
        table = load_or_create(
            self.location,
            self._fs,
            schema=_table_schema(job),
            name=job.name,
            configuration={
                TOPIC_PROPERTY: job.topic,
                TOPIC_ID_PROPERTY: self._topic_id,
                CONTENT_PROPERTY: _content(job),
            },
            partition_by={PARTITION: PARTITION} if job.form is Form.STATE else {},
            clock=self._clock,
            access=self._access,
        )
        self._check(table)
        known = self._next_offsets(table, log)
        if not known and table.add_actions().num_rows:
            raise LedgerError(f"{self.location} has rows, but its log does not say of which offsets: the job "
                              "would process them again; give it another folder")  # fmt: skip
        self._begin(table, {one: 0 if known else log[one].start_offset for one in log.keys() - known.keys()})

    @again_when_stale
    def positions(self, partitions: Iterable[int]) -> dict[int, int]:
        """Returns these partitions' next offsets in the output; one that was added since `prepare` begins at 0."""
        table = load_to_write(self.location, self._fs, self._clock)
        known = self._next_offsets(table, partitions)
        added = dict.fromkeys(set(partitions) - known.keys(), 0)
        self._begin(table, added)
        return {**known, **added}

    def check_topic(self, topic_id: str) -> None:
        """Raises TopicRecreatedError unless `topic_id`, asked for after records were taken, is still the output's."""
        if topic_id != self._topic_id:
            raise self._recreated(topic_id, self._topic_id)

    def next_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """Returns the next offset of each of these partitions for which the output has one."""
        return self._next_offsets(load_table(self.location, self._fs), partitions)

    def commit(self, messages: Mapping[int, list[Message]]) -> Committed:
        """Processes those of the records that the output lacks, and commits rows and offsets in one commit.

        Args:
            messages: By partition, all records from an offset on that the output has reached, in the order of their
                offsets.

        Raises:
            JobError: The job's function failed.
            StaleLedgerError: Other processes committed first at every attempt.
        """
        return self._commit(_Batch(self._job, messages))

    @again_when_stale
    def _commit(self, batch: _Batch) -> Committed:
        ranges: tuple[ProcessedRange, ...] = ()

        def make(table: Table, operation_id: str) -> Rewrite | None:
            nonlocal ranges
            ranges = batch.ranges_after(self._next_offsets(table, batch.messages))
            return self._rewrite(table, operation_id, batch, ranges) if ranges else None

        return Committed(rewrite(self.location, self._fs, make, self._access), ranges)

    def pass_over(self, ranges: Iterable[ProcessedRange]) -> None:
        """Commits ranges that have no record as processed; does nothing where `ranges` is empty.

        Raises StaleLedgerError where another process moves one of these offsets first.
        """
        ranges = tuple(ranges)
        if ranges:
            load_to_write(self.location, self._fs, self._clock).commit(
                [],
                expected={self._app_id(part.partition): part.from_offset for part in ranges},
                transactions=self._transactions({part.partition: part.until_offset for part in ranges}),
                lineage=self._lineage(ranges),
            )

    def _begin(self, table: Table, starts: Mapping[int, int]) -> None:
        """Gives partitions their first offsets; raises StaleLedgerError where another process does so first."""
        if starts:
            lineage = {"kind": "downstream-start", "topic": self._job.topic, "partitions": sorted(starts)}
            expected, transactions = dict.fromkeys(map(self._app_id, starts)), self._transactions(starts)
            table.commit([], expected=expected, transactions=transactions, lineage=lineage)

    def _rewrite(self, table: Table, operation_id: str, batch: _Batch, ranges: tuple[ProcessedRange, ...]) -> Rewrite:
        files = current_files(table) if self._job.form is Form.STATE else []
        added: list[DataFile] = []
        removed: list[CurrentFile] = []
        for part in ranges:
            before = [file for file in files if _partition_of(file) == part.partition]
            rows = batch.rows(part, self._rows(table, before))
            added += self._written(table, operation_id, part.partition, rows)
            removed += before
        return Rewrite(
            added=added,
            removed=removed,
            lineage=self._lineage(ranges),
            expected={self._app_id(part.partition): part.from_offset for part in ranges},
            transactions=self._transactions({part.partition: part.until_offset for part in ranges}),
        )

    def _rows(self, table: Table, files: list[CurrentFile]) -> pa.Table:
        blocks = [as_schema(block, self._job.schema) for file in files for block in read_rows(table, file.name)]
        return pa.concat_tables(blocks) if blocks else self._job.schema.empty_table()

    def _written(self, table: Table, operation_id: str, partition: int, rows: pa.Table) -> list[DataFile]:
        schema, values = file_schema(table), {}
        if PARTITION in table.partition_columns:
            values = {PARTITION: str(partition)}
        elif self._job.form is Form.STATE:
            rows = rows.append_column(PARTITION, pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows))
        with DataFileWriter(
            table.location,
            operation_id,
            partition,
            schema,
            self._fs,
            partition_values=values,
            field_ids=table.field_ids,
        ) as writer:
            writer.write(as_schema(rows, schema))
            file = writer.finish()
        return [] if file is None else [file]

    def _check(self, table: Table) -> None:
        job, properties = self._job, table.configuration
        if (topic := properties.get(TOPIC_PROPERTY)) != job.topic:
            raise JobError(f"{self.location}: the output of another job, of the topic {topic}; choose another folder")
        if (content := properties.get(CONTENT_PROPERTY)) != _content(job):
            raise JobError(f"{self.location} holds {content}, the job {job.name} makes {_content(job)}; choose another "
                           "folder, and the job processes the topic again")  # fmt: skip
        if (made_from := properties.get(TOPIC_ID_PROPERTY)) != self._topic_id:
            raise self._recreated(self._topic_id, made_from)

    def _recreated(self, topic_id: str, made_from: str | None) -> TopicRecreatedError:
        return TopicRecreatedError(
            f"topic {self._job.topic} was deleted and created again since {self.location} was made: its id is "
            f"{topic_id}, the table's {made_from}; give the job another folder, or remove this one"
        )

    def _next_offsets(self, table: Table, partitions: Iterable[int]) -> dict[int, int]:
        found = {partition: table.transaction_version(self._app_id(partition)) for partition in partitions}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def _transactions(self, offsets: Mapping[int, int]) -> dict[str, int]:
        return {self._app_id(partition): offset for partition, offset in offsets.items()}

    def _app_id(self, partition: int) -> str:
        return f"millrace/downstream/{self._topic_id}/{partition}"

    def _lineage(self, ranges: Iterable[ProcessedRange]) -> dict[str, object]:
        return {
            "kind": LINEAGE_KIND,
            "time_ms": self._clock.now_ms(),
            "job": self._job.name,
            "topic": self._job.topic,
            "topic_id": self._topic_id,
            "ranges": [part._asdict() for part in ranges if part.reason is None],
            "lost": [part._asdict() for part in ranges if part.reason is not None],
        }


class _Batch:
    """The records to commit, with the rows that the job's function returned, so that a retry does not call it again."""

    def __init__(self, job: MicroBatchJob, messages: Mapping[int, list[Message]]) -> None:
        self._job = job
        self.messages = messages
        self._made: dict[ProcessedRange, pa.Table] = {}

    def ranges_after(self, next_offsets: Mapping[int, int]) -> tuple[ProcessedRange, ...]:
        """Returns a range for each partition with records at or after its next offset in the output."""
        left = {one: from_offset(self.messages[one], offset) for one, offset in next_offsets.items()}
        return tuple(
            ProcessedRange(partition, next_offsets[partition], messages[-1].offset + 1, len(messages))
            for partition, messages in sorted(left.items())
            if messages
        )

    def rows(self, part: ProcessedRange, before: pa.Table) -> pa.Table:
        """Returns the rows that the job's function makes of a range; a retry of the same range gets the same rows."""
        if part not in self._made:
            messages = from_offset(self.messages[part.partition], part.from_offset)
            self._made[part] = self._job.rows_of(part.partition, before, messages)
        return self._made[part]


def _partition_of(file: CurrentFile) -> int | None:
    """Returns the partition of the topic whose rows a file of a state has, by its folder or its bounds."""
    if (said := file.partition_values.get(PARTITION)) is not None:
        return int(said)
    return None if file.partitions is None else file.partitions[0]


def output_rows(location: str, fs: FileSystem = DISK) -> pa.Table:
    """Returns all rows of an output's newest version; raises TableNotFoundError where there is none."""
    return load_table(location, fs).dataset().to_table()


def _table_schema(job: MicroBatchJob) -> pa.Schema:
    return job.schema if job.form is Form.APPEND else job.schema.insert(0, pa.field(PARTITION, pa.int32()))


def _content(job: MicroBatchJob) -> str:
    """Returns the text by which the table remembers its job's form and columns, such as `state: count int64`."""
    return f"{job.form}: {columns_text(job.schema)}"
