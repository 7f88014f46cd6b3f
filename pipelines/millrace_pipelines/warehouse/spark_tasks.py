"""Tasks of Spark, as the door to where work on a table's files runs (`tasks`): one job, and a piece is of one task.

Work and pieces are pickled with Spark's own cloudpickle and go with the job, which Spark sends to each executor once;
each task answers with the pickled results of its pieces. Nothing here needs a SparkContext, so that a session of Spark
Connect serves as well.

A session whose master is this machine gains nothing by tasks of Spark: its cores are the same, and a task costs more
than the work on a small file. There the door leads to threads (`tasks_of`). Elsewhere a task takes several pieces where
there are many more than cores, so that the cost of tasks does not grow with the number of files.

An error that another attempt would meet again is an answer, too, and raised by the driver: Spark would repeat the task,
and tell it by pages. Any other error lets Spark try the piece again.
"""

from __future__ import annotations

import pickle
import re
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millrace.errors import MillraceError
from millrace_pipelines.spark.collecting import cancelled_on_interrupt, cause_of, collected
from millrace_pipelines.spark.executors import what_executors_lack
from millrace_pipelines.spark.session import cores_of, is_remote, spark_session
from millrace_pipelines.warehouse.errors import ExecutorSetupError, FolderNotSharedError, LoadFailedError
from millrace_pipelines.warehouse.stores.options import carrying
from millrace_pipelines.warehouse.task_table import ONE_FOLDER
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

Piece = TypeVar("Piece")
Result = TypeVar("Result")

ANSWER = "piece long, answer binary"
TASKS_FOR_EACH_CORE = 4
THIS_MACHINE = re.compile(r"local(\[.*)?")


def tasks_of(spark: SparkSession, name: str) -> Tasks:
    """Returns where the work of a session runs: its tasks, or threads where its master is this machine."""
    is_here = not is_remote(spark) and THIS_MACHINE.fullmatch(spark.sparkContext.master or "")
    return THREADS if is_here else SparkTasks(spark, name)


@contextmanager
def tasks_on(master: str, settings: Mapping[str, str], name: str) -> Iterator[Tasks]:
    """Yields where the work of a master runs, for which a session starts where that is not this machine."""
    if THIS_MACHINE.fullmatch(master):
        yield THREADS
        return
    with spark_session(name, master, settings) as spark:
        yield tasks_of(spark, name)


class SparkTasks:
    """Tasks of a Spark session; `name` says in Spark's own pages what they are for."""

    may_repeat = True

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name

    @property
    def at_once(self) -> int:
        """Returns how many tasks the session runs at once."""
        return cores_of(self._spark)

    def run(self, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
        """Yields the result of each piece, in the order of the pieces, once all of them are there.

        Raises:
            LoadFailedError: A task failed at all of its attempts.
            ExecutorSetupError: Spark's executors lack what the work is made of.
            FolderNotSharedError: An executor does not see the table's folder, or may not write into it.
        """
        given = list(pieces)
        for answer in self._answers(work, given) if given else ():
            is_result, found = pickle.loads(answer)  # noqa: S301  our own task wrote it
            if not is_result:
                raise found
            yield found

    def _answers(self, work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[bytes]:
        def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in map(int, batch.column(0).to_numpy()):
                    answer = _answer(work, pieces[number])
                    yield pa.RecordBatch.from_pydict({"piece": [number], "answer": [answer]})

        group = uuid.uuid4().hex
        if not is_remote(self._spark):
            self._spark.sparkContext.setJobGroup(group, self._name, interruptOnCancel=True)
        tasks = min(len(pieces), TASKS_FOR_EACH_CORE * self.at_once)
        frame = self._spark.range(0, len(pieces), 1, tasks).mapInArrow(carrying(attempt), ANSWER)
        try:
            with cancelled_on_interrupt(self._spark, group):
                answers = {row.piece: bytes(row.answer) for row in collected(frame)}
        except (PySparkException, Py4JError) as error:
            if lacking := what_executors_lack(str(error)):
                raise ExecutorSetupError(f"{self._name}: {lacking}") from error
            raise LoadFailedError(f"{self._name}: {cause_of(str(error))}") from error
        return [answers[number] for number in range(len(pieces))]


def _answer(work: Callable[[Piece], Result], piece: Piece) -> bytes:
    """Returns the pickled pair of True and the result, or False and an error that another attempt would meet again."""
    outcome: tuple[bool, Any]
    try:
        outcome = True, work(piece)
    except PermissionError as error:
        outcome = False, FolderNotSharedError(f"{socket.gethostname()} may not write: {error}; {ONE_FOLDER}")
    except (MillraceError, FileNotFoundError) as error:
        outcome = False, error
    answer: bytes = cloudpickle.dumps(outcome)  # type: ignore[no-untyped-call]
    return answer
