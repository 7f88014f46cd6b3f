"""Checks the records of Produce before it is their turn to be appended, and what takes long on a worker thread.

How long a check takes depends on what a batch holds once it is decompressed: some kilobytes can hold gigabytes. A batch
of up to `LONG_BYTES` is begun on the event loop. If it is larger, or those of the request hold more than
`AT_ONCE_BYTES` together, the whole request waits for a thread, and all later ones of its connection wait behind it
(`handlers.in_order`). Plain batches are not prepared: the log checks them while it appends, at some nanoseconds a
record.

Message sets of v0 and v1 are converted first, at some microseconds a record. So one above `MESSAGES_AT_ONCE_BYTES`, or
with anything compressed in it, is not begun on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor

from millrace.errors import MillraceError, RecordError
from millrace.records.batch import Buffer
from millrace.records.message_set import has_wrapper
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.produced import batches_of, is_checked_in_place, is_message_set
from millrace_broker.storage import LogConfig, Prepared, Steps, finished, finished_within, prepare

LONG_BYTES = 64 << 10
AT_ONCE_BYTES = 512 << 10  # a thread is no faster: to hand records over and back takes some 0.7 ms
MESSAGES_AT_ONCE_BYTES = 4 << 10

Preparation = Steps[Prepared] | None  # None: there is nothing to prepare
Outcome = Prepared | MillraceError | None


def preparation(partition: Partition, version: int, records: Buffer, now_ms: int) -> Preparation:
    """Returns the preparation of a partition's records; what is no batch is left to what refuses it."""
    config = partition.log.config
    if is_message_set(version, records):
        return _converted(version, records, config, now_ms)
    if not records or is_checked_in_place(records, config):
        return None
    try:
        return prepare(batches_of(version, records, config), config, now_ms)
    except RecordError:
        return None


def _converted(version: int, records: Buffer, config: LogConfig, now_ms: int) -> Steps[Prepared]:
    if len(records) > MESSAGES_AT_ONCE_BYTES or has_wrapper(records):
        yield AT_ONCE_BYTES + 1  # the next step takes long
    batches = batches_of(version, records, config)
    if not batches:  # all of it was cut short
        return Prepared(memoryview(b""), [], 0)
    return (yield from prepare(batches, config, now_ms))


def prepared_at_once(preparations: Iterable[tuple[Preparation, int]]) -> list[Outcome] | None:
    """Returns what a request's preparations come to, each given with the size of its records; None for long ones."""
    outcomes: list[Outcome] = []
    left_bytes = AT_ONCE_BYTES
    for steps, size_bytes in preparations:
        outcome: Outcome = None
        if steps is not None:
            if size_bytes > LONG_BYTES:
                return None
            try:
                outcome, left_bytes = finished_within(steps, left_bytes)
            except MillraceError as error:
                outcome = error
            if outcome is None:
                return None
        outcomes.append(outcome)
    return outcomes


async def prepared_in_thread(executor: Executor, preparations: Sequence[Preparation]) -> list[Outcome]:
    """Returns the outcomes of all preparations, however long they take."""
    if all(steps is None for steps in preparations):
        return [None] * len(preparations)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(executor, lambda: prepared_here(preparations))


def prepared_here(preparations: Iterable[Preparation]) -> list[Outcome]:
    """Returns the outcomes of all preparations, made by the thread that asks."""
    return [_outcome(steps) for steps in preparations]


def _outcome(steps: Preparation) -> Outcome:
    try:
        return None if steps is None else finished(steps)
    except MillraceError as error:
        return error
