"""Waits for a job of Spark: Ctrl-C ends the job, and of Spark's long reports only the task's own error is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import dropwhile, takewhile

from pyspark import InheritableThread
from pyspark.sql import DataFrame, Row, SparkSession

from millrace_pipelines.spark.session import is_remote

TRACEBACK = "Traceback (most recent call last):\n"
BEHIND_ERROR = ("\tat ", " SQLSTATE")
JVM_CAUSE = re.compile(r"^(?:Caused by)?: [\w.$]+: (?P<said>\S.*)", re.MULTILINE)


def collected(frame: DataFrame) -> list[Row]:
    """Collects a data frame on a thread, so that Ctrl-C meets one that waits, and no call of the JVM."""
    outcome: Future[list[Row]] = Future()

    def collect() -> None:
        try:
            outcome.set_result(frame.collect())
        except BaseException as error:  # noqa: BLE001 -- the thread that waits raises it
            outcome.set_exception(error)

    InheritableThread(target=collect, session=frame.sparkSession, name="load-collect", daemon=True).start()
    return outcome.result()


@contextmanager
def cancelled_on_interrupt(spark: SparkSession, group: str) -> Iterator[None]:
    """Has Spark end the jobs of a group that Ctrl-C ends, before the files of their tasks are removed."""
    try:
        yield
    except KeyboardInterrupt:
        if is_remote(spark):
            spark.interruptAll()
        else:
            spark.sparkContext.cancelJobGroup(group)
        raise


def cause_of(report: str) -> str:
    """Returns the task's own error in Spark's report: that of the last Python traceback, else the JVM's last cause."""
    _, traceback, tail = report.rpartition(TRACEBACK)
    if traceback:
        raised = dropwhile(lambda line: line[:1] in {"", " "}, tail.splitlines())
        return " ".join(takewhile(lambda line: line.strip() and not line.startswith(BEHIND_ERROR), raised))
    causes = [found["said"].rstrip(" :") for found in JVM_CAUSE.finditer(report)]
    return causes[-1] if causes else report.partition("\n")[0]
