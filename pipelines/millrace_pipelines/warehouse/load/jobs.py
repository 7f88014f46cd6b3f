"""The load's one Spark job: a task for each range, its progress polled while it runs.

Nothing here needs a SparkContext, so that a session of Spark Connect serves as well. Progress comes from the context's
status tracker and an accumulator where there is a context, else from Connect's own reports. A task runs in another
process, perhaps on another machine, and therefore opens its own disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import Accumulator, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millrace.errors import RecordError
from millrace.fs import OsFileSystem
from millrace_pipelines.spark.errors import Accept
from millrace_pipelines.spark.session import is_remote
from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.task import LoadSpec, ReadRange, TaskResult, load_range

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

POLL_INTERVAL_S = 0.2
RESULT = "result string"

OnProgress = Callable[[int, int], None]


def run_tasks(
    spark: SparkSession, tasks: Sequence[OffsetRange], spec: LoadSpec, read: ReadRange, on_progress: OnProgress
) -> list[TaskResult]:
    """Loads each range in its own task and returns their answers.

    Args:
        spark: Where the tasks run.
        tasks: A range for each task.
        spec: What they share.
        read: Gives the records of a range, inside the task.
        on_progress: Takes the number of finished tasks and of the records that they read, every POLL_INTERVAL_S, on
            another thread.

    Raises:
        LoadFailedError: A task failed at all of its attempts.
    """
    records = None if is_remote(spark) else spark.sparkContext.accumulator(0)

    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in map(int, batch.column(0).to_numpy()):
                result = _load_or_damage(tasks[task], spec, read, task)
                if records is not None:
                    records.add(result.records)
                yield pa.RecordBatch.from_arrays([pa.array([result.to_json()])], names=["result"])

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(attempt, RESULT)
    with _followed(spark, spec.load_id, records, on_progress):
        results = collect_results(frame, spec.topic)
    on_progress(len(tasks), sum(result.records for result in results))
    return results


def _load_or_damage(span: OffsetRange, spec: LoadSpec, read: ReadRange, task: int) -> TaskResult:
    """Loads a range; a damaged log is an answer, for another attempt would find the same, and Spark tells it at length.

    The files of the attempt are the load's, which removes them.
    """
    try:
        return load_range(span, spec, read, task=task, fs=OsFileSystem())
    except RecordError as error:
        return TaskResult(range=span, records=0, damage=str(error))


def collect_results(frame: DataFrame, topic: str) -> list[TaskResult]:
    """Runs the job of a frame of RESULT and returns what its tasks answer; raises LoadFailedError where it fails."""
    try:
        rows = frame.collect()
    except (PySparkException, Py4JError) as error:
        raise LoadFailedError(f"loading {topic}: {_cause(error)}") from error
    results = [TaskResult.from_json(row.result) for row in rows]
    for result in results:
        if result.damage:
            raise LoadFailedError(f"{result.damage}; {Accept.LOST_OFFSETS.flag} of a load goes on behind it")
    return results


def _followed(
    spark: SparkSession, load_id: str, records: Accumulator[int] | None, on_progress: OnProgress
) -> AbstractContextManager[None]:
    if records is None:
        return _reported(spark, on_progress)
    context = spark.sparkContext
    context.setJobGroup(load_id, f"load {load_id}", interruptOnCancel=True)
    return _polled(lambda: on_progress(_tasks_done(context, load_id), records.value))


@contextmanager
def _reported(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    """Passes on what Spark Connect reports: the number of finished tasks, but not what they read."""

    def handle(*, stages: Iterable[StageInfo] | None, **_: object) -> None:
        on_progress(sum(stage.num_completed_tasks for stage in stages or ()), 0)

    handler = cast("ProgressHandler", handle)  # Spark calls any function, though it names a class
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


def _tasks_done(context: SparkContext, group: str) -> int:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


def _cause(error: Exception) -> str:
    """Returns the task's own error out of Spark's report: the last line of the last Python traceback."""
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [line for line in lines if "Error: " in line and not line.startswith(("File", "org.", "at "))]
    return raised[-1] if raised else str(error)


@contextmanager
def _polled(poll: Callable[[], None]) -> Iterator[None]:
    """Calls `poll` every POLL_INTERVAL_S on a thread."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(POLL_INTERVAL_S):
            poll()

    thread = threading.Thread(target=run, name="load-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
