"""Loads of many tables at once, whose small ranges share one Spark job.

    each load, on a thread of its own      the caller's thread
    look, plan, open, hold the lease ────► waits until each load asks, or is done
                                           one job for the ranges of all small loads; then a job for each large one
    verify, commit, publish ◄──────────── the results of its tasks

Starting a job costs Spark some hundred times the processor time of a task with a few records, so that a hundred small
topics would spend their minute on it. Waiting for brokers, and for the disk's syncs, is done at the same time.

Each load is the exactly-once load that it is alone (`load.load`), with its own lease and its own commit. One that fails
stops no other: a task's error is an answer of the shared job, and its load runs again in a job of its own. A crash
leaves each table as it was, or with its whole load.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace.tracing import Tracing
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.spark.choices import Reader
from millrace_pipelines.spark.collecting import cancelled_on_interrupt, collected
from millrace_pipelines.spark.session import SharedSession, cores_of, is_remote
from millrace_pipelines.warehouse.ledger.plan import OffsetRange, split_ranges
from millrace_pipelines.warehouse.load.jobs import TableTasks, attempted, checked, run_alone
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.load.task import LoadSpec, ReadRange, TaskResult
from millrace_pipelines.warehouse.stores.options import carrying
from millrace_pipelines.warehouse.table.files import remove_files_of_load

SMALL_OFFSETS = 100_000
"""A load of at most so many offsets shares a job; the job of a larger one takes so long that others would wait."""
MOST_TOGETHER = 64
"""So many loads are planned and committed at a time: each has a thread, and its connections."""
TASK_SCHEMA = "load long, result string"
TASK_COLUMNS = ["load", "result"]

Outcome: TypeAlias = LoadReport | Exception


@dataclass(frozen=True, slots=True)
class _Asked:
    """A load that waits for the results of its tasks."""

    spark: SparkSession
    tasks: TableTasks
    results: Future[list[TaskResult]] = field(default_factory=Future)

    @property
    def is_small(self) -> bool:
        return self.tasks.reader is Reader.MILLRACE and self.tasks.offsets <= SMALL_OFFSETS


@dataclass(frozen=True, slots=True)
class _Done:
    """The outcome of a load."""

    options: LoadOptions
    outcome: Outcome


class _Meeting:
    """Where the threads of the loads leave what they ask for, or what became of them."""

    def __init__(self) -> None:
        self.events: SimpleQueue[_Asked | _Done] = SimpleQueue()
        self._lock = Lock()
        self._has_ended = False

    def run(self, spark: SparkSession, tasks: TableTasks) -> list[TaskResult]:
        """Asks for tasks to be run, on a load's thread, and waits for their results; raises what stopped them."""
        asked = _Asked(spark, tasks)
        with self._lock:
            if self._has_ended:
                raise KeyboardInterrupt
            self.events.put(asked)
        return asked.results.result()

    def end(self) -> None:
        """Ends every load that waits for its tasks, or asks for them from now on, as Ctrl-C ends a load."""
        with self._lock:
            self._has_ended = True
        while not self.events.empty():
            if isinstance(event := self.events.get(), _Asked):
                event.results.set_exception(KeyboardInterrupt())


def load_together(
    loads: Sequence[LoadOptions],
    spark: SharedSession,
    *,
    fs: FileSystem = DISK,
    clock: Clock = CLOCK,
    tracing: Tracing | None = None,
) -> Iterator[tuple[LoadOptions, Outcome]]:
    """Loads what each topic has and its table lacks; yields each load's report or error, as soon as it is done.

    The loads are of different tables; at most MOST_TOGETHER are under way at a time.
    """
    one_load = partial(load_topic, spark=spark, fs=fs, clock=clock, tracing=tracing)
    for first in range(0, len(loads), MOST_TOGETHER):
        some, meeting = loads[first : first + MOST_TOGETHER], _Meeting()

        def load(options: LoadOptions, meeting: _Meeting = meeting) -> None:
            try:
                outcome: Outcome = one_load(options, run=meeting.run)
            except Exception as error:  # noqa: BLE001  one load's failure stops no other
                outcome = error
            meeting.events.put(_Done(options, outcome))

        with ThreadPoolExecutor(len(some), thread_name_prefix="load") as pool:
            for options in some:
                pool.submit(load, options)
            try:
                yield from _met(meeting, len(some), fs)
            finally:
                meeting.end()


def _met(meeting: _Meeting, under_way: int, fs: FileSystem) -> Iterator[tuple[LoadOptions, Outcome]]:
    """Yields what becomes of the loads under way; runs their tasks once each of them asks or is done."""
    left, waiting = under_way, list[_Asked]()
    while left:
        event = meeting.events.get()
        under_way -= 1
        if isinstance(event, _Done):
            left -= 1
            yield event.options, event.outcome
        else:
            waiting.append(event)
        if under_way == 0 and waiting:
            under_way = len(waiting)
            with _ended_on_error(waiting):
                _run(waiting, fs)
            waiting = []


@contextmanager
def _ended_on_error(waiting: Sequence[_Asked]) -> Iterator[None]:
    """Ends the loads that still wait where their tasks can't be run any more."""
    try:
        yield
    finally:
        for one in waiting:
            if not one.results.done():
                one.results.set_exception(KeyboardInterrupt())


def _run(waiting: Sequence[_Asked], fs: FileSystem) -> None:
    """Runs what the loads ask for: small ones together, then the others, and those whose tasks failed, alone."""
    small, alone = [one for one in waiting if one.is_small], [one for one in waiting if not one.is_small]
    together = run_together(small[0].spark, [one.tasks for one in small]) if small else []
    for one, results in zip(small, together, strict=True):
        if results is None:
            for location in (one.tasks.spec.table, one.tasks.spec.dead_letters_table):
                remove_files_of_load(location, one.tasks.spec.load_id, fs)
            alone.append(one)
        else:
            _answer(one, partial(checked, results, one.tasks.spec.topic))
    for one in alone:
        _answer(one, partial(run_alone, one.spark, one.tasks))


def _answer(asked: _Asked, run: Callable[[], list[TaskResult]]) -> None:
    try:
        results = run()
    except Exception as error:  # noqa: BLE001  the load that waits raises it
        asked.results.set_exception(error)
    else:
        asked.results.set_result(results)


def run_together(spark: SparkSession, loads: Sequence[TableTasks]) -> list[list[TaskResult] | None]:
    """Runs the tasks of several loads in one job, one after the other on each core; returns each load's results.

    None stands for a load of which a task failed, and for all of them where the job itself did.
    """
    specs = [(one.spec, one.read) for one in loads]
    tasks = [
        (load, part) for load, one in enumerate(loads) for part in split_ranges(one.ranges, one.max_records_per_task)
    ]

    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in map(int, batch.column(0).to_numpy()):
                load, part = tasks[task]
                answer = _answer_of(part, *specs[load], task)
                yield pa.RecordBatch.from_arrays([pa.array([load]), pa.array([answer], pa.string())], TASK_COLUMNS)

    frame = spark.range(0, len(tasks), 1, min(len(tasks), cores_of(spark))).mapInArrow(carrying(attempt), TASK_SCHEMA)
    group = uuid.uuid4().hex
    if not is_remote(spark):
        spark.sparkContext.setJobGroup(group, f"{len(loads)} loads", interruptOnCancel=True)
    try:
        with cancelled_on_interrupt(spark, group):
            rows = collected(frame)
    except (PySparkException, Py4JError):
        return [None] * len(loads)
    found: list[list[str | None]] = [[] for _ in loads]
    for row in rows:
        found[row.load].append(row.result)
    return [None if None in some else [TaskResult.from_json(one) for one in some if one] for some in found]


def _answer_of(part: OffsetRange, spec: LoadSpec, read: ReadRange, task: int) -> str | None:
    """Returns a task's result as JSON; None where it failed, so that the job goes on with the next."""
    try:
        return attempted(part, spec, read, task).to_json()
    except Exception:  # noqa: BLE001  its load runs again alone, and tells then what is wrong
        return None
