"""A downstream job: a function over micro-batches of a topic's records, and what its output looks like.

    @micro_batch_job(topic="flights", schema=pa.schema([("carrier", pa.string()), ("flights", pa.int64())]))
    def flights_by_carrier(rows, messages): ...

The function is called with records of one partition. What it returns goes into the output by the job's form:

    form      the function gets                               what it returns
    state     the partition's rows in the output so far       takes the place of these rows
    append    no rows                                         is appended

Workers are processes that import the job by its `reference`, so it must be an attribute of a module.

Records wait for the next commit by partition, until a bound of the job is reached. Those of a partition that is lost go
on waiting. To drop them would leave a gap before those that were handed out right after them, and a commit does no
harm: it leaves out what the output has by then (`from_offset`). A partition that comes back begins at the output's
offset, so its records may come again, from an offset that is still waiting: then those that wait are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module

import pyarrow as pa

from millrace.client.consumer import Message
from millrace.errors import WarehouseError
from millrace_pipelines.spark.choices import Isolation

PARTITION = "partition"

Process = Callable[[pa.Table, Sequence[Message]], pa.Table]
"""Takes rows of the output and records of one partition, in the order of their offsets, and returns rows."""


class JobError(WarehouseError):
    """A job can't be found or used, or its function failed on a batch, of which nothing is committed."""


class WorkersFailedError(WarehouseError, retriable=True):
    """Workers ended before the output had reached the topic's end; another run goes on from the output's offsets."""


class Form(StrEnum):
    """The meaning of the rows that `process` returns: the whole new state of a partition, or rows that are appended."""

    STATE = "state"
    APPEND = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchJob:
    """A downstream job: a function with its topic; a batch ends at the first of its bounds that is reached.

    Attributes:
        name: Names the output's folder, the group and Dagster's asset.
        topic: The topic whose records it takes.
        schema: The columns of the rows that `process` returns.
        process: The function; it may be called again with the same records, so it must have no side effects.
        form: Whether the output is a state or appended rows.
        max_records: The records of a batch.
        max_bytes: The bytes of a batch's keys and values.
        max_wait_ms: How long the first record of a batch may wait for the commit.
        isolation: Whether records of open and aborted transactions are taken.
    """

    name: str
    topic: str
    schema: pa.Schema
    process: Process
    form: Form = Form.STATE
    max_records: int = 50_000
    max_bytes: int = 32 << 20
    max_wait_ms: int = 5_000
    isolation: Isolation = Isolation.READ_COMMITTED

    @property
    def reference(self) -> str:
        """Returns `MODULE:ATTRIBUTE`, by which another process finds the job."""
        return f"{self.process.__module__}:{self.process.__qualname__}"

    def rows_of(self, partition: int, before: pa.Table, messages: Sequence[Message]) -> pa.Table:
        """Calls `process` with a partition's rows so far and its new records, and returns the rows that it returns.

        Raises JobError where the function fails, or returns other columns than `schema`.
        """
        batch = f"{self.name}: {self.topic}-{partition}, offsets {messages[0].offset} to {messages[-1].offset}"
        try:
            rows = self.process(before, messages)
        except Exception as error:  # the function is the user's: whatever it raises is the batch's failure
            raise JobError(f"{batch}: the job's function failed: {type(error).__name__}: {error}") from error
        if not isinstance(rows, pa.Table) or not rows.schema.equals(self.schema):
            returned = columns_text(rows.schema) if isinstance(rows, pa.Table) else type(rows).__name__
            raise JobError(f"{batch}: the job's function returned {returned}, not rows of {columns_text(self.schema)}")
        return rows


def columns_text(schema: pa.Schema) -> str:
    """Returns a schema as text for messages: each column's name and type."""
    return ", ".join(f"{column.name}: {column.type}" for column in schema)


def micro_batch_job(
    *,
    topic: str,
    schema: pa.Schema,
    name: str | None = None,
    form: Form = Form.STATE,
    max_records: int = 50_000,
    max_bytes: int = 32 << 20,
    max_wait_ms: int = 5_000,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> Callable[[Process], MicroBatchJob]:
    """Returns a decorator that makes a job of a function; the job has the function's name unless another is given.

    The arguments are the job's attributes.

    Raises:
        JobError: The schema has a column `partition`, which a state adds by itself.
    """
    if form is Form.STATE and PARTITION in schema.names:
        raise JobError(f"a state adds the column {PARTITION!r} by itself; leave it out of the schema")

    def job_of(process: Process) -> MicroBatchJob:
        return MicroBatchJob(
            name=name or process.__name__,
            topic=topic,
            schema=schema,
            process=process,
            form=form,
            max_records=max_records,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            isolation=isolation,
        )

    return job_of


def find_job(reference: str) -> MicroBatchJob:
    """Returns the job at `MODULE:ATTRIBUTE`; raises JobError where there is none."""
    module, _, attribute = reference.partition(":")
    try:
        found: object = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(f"{reference}: there is no such job: {error}") from error
    if not isinstance(found, MicroBatchJob):
        raise JobError(f"{reference}: not a job, but {type(found).__name__}; is @micro_batch_job missing?")
    return found


class Pending:
    """The records of a batch that is not committed yet."""

    def __init__(self, job: MicroBatchJob) -> None:
        self._job = job
        self.clear()

    def clear(self) -> None:
        """Removes all records from the batch, so that the next one can begin."""
        self._messages: dict[int, list[Message]] = {}
        self._records = self._bytes = 0
        self._began_ms: int | None = None

    def add(self, message: Message, now_ms: int) -> None:
        """Adds a record; where its offset is not above the last one's, the partition's waiting records are dropped."""
        waiting = self._messages.setdefault(message.partition, [])
        if waiting and message.offset <= waiting[-1].offset:
            self._drop(message.partition)
            waiting = self._messages.setdefault(message.partition, [])
        if self._began_ms is None:
            self._began_ms = now_ms
        waiting.append(message)
        self._records += 1
        self._bytes += _size_bytes(message)

    def is_full(self, now_ms: int) -> bool:
        """Returns whether the batch has reached a bound of its job."""
        job, began_ms = self._job, self._began_ms
        if began_ms is None:
            return False
        return self._records >= job.max_records or self._bytes >= job.max_bytes or now_ms - began_ms >= job.max_wait_ms

    @property
    def messages(self) -> Mapping[int, list[Message]]:
        """Returns the records of the batch by partition, in the order of their offsets."""
        return self._messages

    def _drop(self, partition: int) -> None:
        dropped = self._messages.pop(partition)
        self._records -= len(dropped)
        self._bytes -= sum(map(_size_bytes, dropped))


def from_offset(messages: list[Message], offset: int) -> list[Message]:
    """Returns the records at or after an offset; `messages` are in the order of their offsets."""
    if not messages or messages[0].offset >= offset:
        return messages
    return [message for message in messages if message.offset >= offset]


def _size_bytes(message: Message) -> int:
    return len(message.key or b"") + len(message.value or b"")
