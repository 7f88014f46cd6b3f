"""Starts the process that does a run's jobs (`millrace_pipelines.runs`), reads what it reports, and ends it.

    for key, outcome in run_jobs(context, [LoadJob(key="table/events", options=…), …], master="local[2,3]"):
        …

Where the process ends early, the job that it was doing has failed, and another process does the jobs that were not
begun. Whatever ends the run also ends the process and Spark's JVM, even where the run's own process is killed. When a
run is cancelled, they have STOP_TIMEOUT_S to end by themselves.

Dagster's own client of Pipes would wait for a cancelled process without end, and makes every asset of a step required,
also one for which there is nothing new. Its own reader of messages looks at their file in a thread, which stops where
it finds no line and then sees that the process has ended: what the process tells between these two looks is lost, and
with it the report of a load that was committed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import dagster as dg
from dagster_pipes import PipesContextData, PipesDefaultMessageWriter, PipesParams

from millrace.lifeline import cut_lifeline, start_with_lifeline
from millrace_pipelines.runs.jobs import MESSAGE, WORK, Failed, Job, Message, Report, Work, read_report, unreported

COMMAND = (sys.executable, "-m", "millrace_pipelines.runs.child")
POLL_INTERVAL_S = 0.1
STOP_TIMEOUT_S = 6.0

Context: TypeAlias = dg.OpExecutionContext | dg.AssetExecutionContext


class MessageFile(dg.PipesMessageReader):
    """Reads the file to which the child process writes messages: when `read` is called, and at the end."""

    def __init__(self) -> None:
        self._path = Path()
        self._read_bytes = 0

    @contextmanager
    def read_messages(self, handler: dg.PipesMessageHandler) -> Iterator[PipesParams]:
        """Yields the parameters that name the message file to the child; only this user can read the file."""
        self._handler = handler
        with TemporaryDirectory() as folder:
            self._path = Path(folder, "messages")
            self._path.touch()
            try:
                yield {PipesDefaultMessageWriter.FILE_PATH_KEY: str(self._path)}
            finally:
                self.read()

    def read(self) -> None:
        """Passes the messages that were written since the last call to the handler."""
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            lines, end, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(lines) + len(end)
        for line in lines.splitlines():
            self._handler.handle_message(json.loads(line))

    @property
    def expected_writer_count(self) -> int:
        """Returns 1, the number of writers that Pipes expects; the base class's property would warn at each use."""
        return 1

    def no_messages_debug_text(self) -> str:
        """Returns the sentence that Dagster shows where no message came: which file was read."""
        return f"Messages were looked for in {self._path}."


Outcome: TypeAlias = Report | Failed
"""What became of a job: its report, without a version where there was nothing to commit, or why it failed."""


def run_jobs(
    context: Context,
    jobs: Sequence[Job],
    *,
    master: str | None = None,
    spark_settings: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, Outcome]]:
    """Runs jobs in a child process with one Spark session, and yields each one's key and outcome as soon as it is done.

    Args:
        context: The step that runs.
        jobs: What to do, one after the other; their keys differ.
        master: Spark's master; None for all cores of this machine.
        spark_settings: Settings of the session.
    """
    waiting = {job.key: job for job in jobs}
    while waiting:
        child = ChildProcess(
            context, Work(jobs=tuple(waiting.values()), master=master, spark_settings=spark_settings or {})
        )
        begun, has_reported = None, False
        for message in child.messages():
            begun = message.key
            outcome = _outcome(waiting[message.key], message)
            if outcome is not None:
                begun, has_reported = None, True
                del waiting[message.key]
                yield message.key, outcome
        given_up = [begun] if begun is not None else [] if has_reported else list(waiting)
        for key in given_up:
            del waiting[key]
            yield key, unreported(child.status, has_begun=begun is not None)


def _outcome(job: Job, message: Message) -> Outcome | None:
    """Returns the outcome of the job that a message is about; None where it says that the job begins."""
    return message.failed if message.report is None else read_report(job, message.report)


class ChildProcess:
    """The child process that runs the jobs of a step.

    Attributes:
        status: The exit status, negative for a signal; it is known once all messages have been yielded.
    """

    def __init__(self, context: Context, work: Work) -> None:
        self._context = context
        self._work = work
        self.status = 0

    def messages(self) -> Iterator[Message]:
        """Starts the process, and yields its messages until it has ended; ends it where the caller stops reading."""
        extras = WORK.dump_python(self._work, mode="json")
        reader = MessageFile()
        with _pipes(self._context, reader, extras) as session:
            seen = 0
            for _ in self._poll(session.get_bootstrap_env_vars()):
                reader.read()
                told = session.get_custom_messages()[seen:]
                seen += len(told)
                yield from map(MESSAGE.validate_python, told)
        yield from map(MESSAGE.validate_python, session.get_custom_messages()[seen:])

    def _poll(self, environment: Mapping[str, str]) -> Iterator[None]:
        """Starts the child process, and yields every POLL_INTERVAL_S until it has ended."""
        with _started(environment) as process:
            while True:
                try:
                    self.status = process.wait(POLL_INTERVAL_S)
                except subprocess.TimeoutExpired:
                    yield
                else:
                    return


@contextmanager
def _pipes(context: Context, reader: MessageFile, extras: Mapping[str, object]) -> Iterator[dg.PipesSession]:
    """Opens a Pipes session that hands `extras` to the child and takes its messages; it reports no asset."""
    handler = dg.PipesMessageHandler(context, reader)
    data = PipesContextData(
        asset_keys=None, code_version_by_asset_key=None, provenance_by_asset_key=None, partition_key=None,
        partition_key_range=None, partition_time_window=None, run_id=context.run.run_id, job_name=None,
        retry_number=context.retry_number, extras=extras,
    )  # fmt: skip
    with (
        dg.PipesTempFileContextInjector().inject_context(data) as where_context,
        handler.handle_messages() as where_messages,
    ):
        yield dg.PipesSession(
            context_data=data,
            message_handler=handler,
            context_injector_params=where_context,
            message_reader_params=where_messages,
            context=context,
        )


@contextmanager
def _started(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Yields the child, started in a process group that is killed at the end; after an error it gets time to stop."""
    process = start_with_lifeline(COMMAND, environment={**os.environ, **environment})
    try:
        yield process
    except BaseException:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
        raise
    finally:
        cut_lifeline(process)
        process.wait()
