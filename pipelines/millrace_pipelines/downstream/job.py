"""A downstream job: a function over micro-batches of a topic's records, and what its output looks like.

    @micro_batch_job(topic="flights", schema=pa.schema([("carrier", pa.string()), ("flights", pa.int64())]))
    def flights_by_carrier(rows, messages): ...

The function is called with records of one partition. What it returns goes into the output by the job's form:

    form      the function gets                               what it returns
    state     the partition's rows in the output so far       takes the place of these rows
    append    no rows                                         is appended

Workers are processes that import the job by its `reference`, so it must be an attribute of a module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module

import pyarrow as pa

from millrace.client.consumer import Message
from millrace_pipelines.downstream.errors import JobError
from millrace_pipelines.spark.choices import Isolation

PARTITION = "partition"

Process = Callable[[pa.Table, Sequence[Message]], pa.Table]
"""Takes rows of the output and records of one partition, in the order of their offsets, and returns rows."""


class Form(StrEnum):
    """Which form the rows of an output have."""

    STATE = "state"
    APPEND = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchJob:
    """A job, whose batches end at the first bound that they reach.

    Attributes:
        name: Names the output's folder, the group and Dagster's asset.
        topic: The topic whose records it takes.
        schema: The columns of the rows that `process` returns.
        process: The function; it may be called again with records that were not committed, and must do nothing else.
        form: Whether the output is a state or appended rows.
        max_records: The records of a batch.
        max_bytes: The bytes of its keys and values.
        max_wait_ms: How long its first record waits for the commit.
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
        """`MODULE:ATTRIBUTE`, by which another process finds the job."""
        return f"{self.process.__module__}:{self.process.__qualname__}"

    def rows_of(self, partition: int, before: pa.Table, messages: Sequence[Message]) -> pa.Table:
        """Returns what `process` makes of a partition's records.

        Raises JobError where it fails or its columns are others.
        """
        place = f"{self.name}: {self.topic}-{partition}, offsets {messages[0].offset} to {messages[-1].offset}"
        try:
            rows = self.process(before, messages)
        except Exception as error:  # the function is the user's: whatever it raises is the batch's failure
            raise JobError(f"{place}: the job's function failed: {type(error).__name__}: {error}") from error
        if not isinstance(rows, pa.Table) or not rows.schema.equals(self.schema):
            returned = columns_text(rows.schema) if isinstance(rows, pa.Table) else type(rows).__name__
            raise JobError(f"{place}: the job's function returned {returned}, not rows of {columns_text(self.schema)}")
        return rows


def columns_text(schema: pa.Schema) -> str:
    """Returns the columns with their types, as messages name them."""
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
