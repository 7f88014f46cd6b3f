"""The process that does the jobs of a run: `python -m millrace_pipelines.runs.child`, under Dagster's Pipes.

    for each job:  report that it begins ─ do it ─ send its report, or why it failed; the next follows in either case

The Spark session starts when the first job has something to read. Where Spark's JVM has ended, the process reports the
job and ends, too; another process does the jobs that are left. SIGINT stops the running job, whose files and lease are
removed, and ends the process.
"""

from __future__ import annotations

import os
import signal
import traceback
from contextlib import suppress

from dagster_pipes import PipesContext, open_dagster_pipes

from millrace.errors import MillraceError
from millrace.tracing import Tracing, tracing_of
from millrace_pipelines.runs.jobs import (
    MESSAGE,
    WORK,
    Failed,
    Job,
    LoadJob,
    Message,
    Report,
    Work,
    failure_of,
    jvm_ended,
    write_report,
)
from millrace_pipelines.spark.lost_executors import LostExecutors
from millrace_pipelines.spark.session import SharedSession, end_jvm, jvm_status
from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.load.load import SERVICE, load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadListener, Step
from millrace_pipelines.warehouse.stores.options import declare_store_options

KILLED_JVM_TIMEOUT_S = 1.0
STOPPED_JVM_TIMEOUT_S = 4.0


class PipesListener:
    """Writes the progress of a job into Dagster's log: steps, changes in the number of finished tasks, lost executors.

    `lost` is that of all jobs of the session.
    """

    def __init__(self, context: PipesContext, key: str, lost: LostExecutors) -> None:
        self._log = context.log
        self._key = key
        self._lost = lost
        self._done = 0

    def reached(self, step: Step) -> None:
        """Writes the step into the log."""
        self._tell_losses()
        self._log.info("%s: %s", self._key, step)

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Writes the number of finished tasks into the log when it changes."""
        self._tell_losses()
        if done != self._done:
            self._done = done
            self._log.info("%s: %d of %d tasks done, %d records read", self._key, done, total, records)

    def _tell_losses(self) -> None:
        for sentence in self._lost.news():
            self._log.warning("%s: %s", self._key, sentence)


def main() -> None:
    """Runs the jobs that the Pipes context brings, and sends a message at each one's beginning and end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process has inherited
    with open_dagster_pipes() as context, suppress(KeyboardInterrupt), tracing_of(os.environ, SERVICE) as tracing:
        _do_jobs(context, WORK.validate_python(context.extras), tracing)
    end_jvm(STOPPED_JVM_TIMEOUT_S)


def _do_jobs(context: PipesContext, work: Work, tracing: Tracing | None) -> None:
    declare_store_options(work.stores)
    lost = LostExecutors()
    with SharedSession("loads", work.master, work.spark_settings) as session:
        for job in work.jobs:
            _tell(context, Message(key=job.key))
            _tell(context, outcome_of(job, session, PipesListener(context, job.key, lost), tracing))
            if jvm_status() is not None:
                return


def outcome_of(job: Job, session: SharedSession, listener: PipesListener, tracing: Tracing | None) -> Message:
    """Runs one job and returns the message with its report or failure; the traceback of an error goes to stderr."""
    try:
        report = do(job, session, listener, tracing)
    except Exception as error:  # noqa: BLE001  one job's failure stops no other
        traceback.print_exc()
        return Message(key=job.key, failed=_failed(error))
    return Message(key=job.key, report=write_report(job, report))


def do(job: Job, session: SharedSession, listener: LoadListener, tracing: Tracing | None = None) -> Report:
    """Runs a load or a reload and returns its report; raises WarehouseError, TopicError, ClientError or SetupError."""
    if isinstance(job, LoadJob):
        return load_topic(job.options, spark=session, listener=listener, tracing=tracing)
    return reload_topic(job.options, job.selection, spark=session, listener=listener)


def _failed(error: Exception) -> Failed:
    """Returns an error as a failure; waits a moment to see whether the JVM has ended, where that may be the cause."""
    may_be_spark = isinstance(error, LoadFailedError) or not isinstance(error, MillraceError)
    status = jvm_status(KILLED_JVM_TIMEOUT_S) if may_be_spark else None
    return failure_of(error) if status is None else jvm_ended(status)


def _tell(context: PipesContext, message: Message) -> None:
    context.report_custom_message(MESSAGE.dump_python(message, mode="json"))


if __name__ == "__main__":
    main()
