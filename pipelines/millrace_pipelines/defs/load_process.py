"""Starts the process that does a run's jobs (`millrace_pipelines.runs`), and reports their outcomes to Dagster.

    for key, outcome in run_jobs(context, [LoadJob(key="table/events", options=…), …], master="local[2,3]"):
        …

Where the process ends early, the job that it was doing has failed, and another process does the jobs that were not
begun. Whatever ends the run also ends the process and Spark's JVM, even where the run's own process is killed. When a
run is cancelled, they have STOP_TIMEOUT_S to end by themselves.

Dagster's own client of Pipes would wait for a cancelled process without end, and makes every asset of a step required,
also one for which there is nothing new. Its own reader of messages looks at their file in a thread, which stops where
it finds no line and then sees that the process has ended: what the process tells between these two looks is lost, and
with it the report of a load that was committed.

A job that committed something is a materialization of its asset. One that found nothing new is an observation, which
updates nothing downstream, and so is a dry run, with what a run would do. After all of them the step fails if a job
failed, with the sentence of each that failed.

The step asks for its retries itself, and therefore has no retry policy: with one, Dagster would also retry a step that
a user has cancelled, and its error would read "Exceeded max_retries".
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import dagster as dg
from dagster_pipes import PipesContextData, PipesDefaultMessageWriter, PipesParams

from millrace.errors import MillraceError
from millrace.fs import FileSystem
from millrace.lifeline import cut_lifeline, start_with_lifeline
from millrace_pipelines.defs.maintenance import label, report_table
from millrace_pipelines.defs.table_metadata import loaded_metadata
from millrace_pipelines.machine import DISK
from millrace_pipelines.runs.jobs import (
    MESSAGE,
    WORK,
    Failed,
    Job,
    LoadJob,
    Message,
    ReloadJob,
    Report,
    Work,
    failure_of,
    read_report,
    unreported,
)
from millrace_pipelines.warehouse.load.report import LoadedRange, LoadPreview, LoadReport, ReloadPreview

COMMAND = (sys.executable, "-m", "millrace_pipelines.runs.child")
POLL_INTERVAL_S = 0.1
STOP_TIMEOUT_S = 6.0
NO_STORES: Mapping[str, Mapping[str, str]] = {}

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
    stores: Mapping[str, Mapping[str, str]] = NO_STORES,
) -> Iterator[tuple[str, Outcome]]:
    """Runs jobs in a child process with one Spark session, and yields each one's key and outcome as soon as it is done.

    Args:
        context: The step that runs.
        jobs: What to do, one after the other; their keys differ.
        master: Spark's master; None for all cores of this machine.
        spark_settings: Settings of the session.
        stores: Options of stores by the beginnings of addresses, with secrets as env:NAME.
    """
    waiting = {job.key: job for job in jobs}
    while waiting:
        work = Work(jobs=tuple(waiting.values()), master=master, spark_settings=spark_settings or {}, stores=stores)
        child = ChildProcess(context, COMMAND, WORK.dump_python(work, mode="json"))
        begun, has_reported = None, False
        for message in map(MESSAGE.validate_python, child.messages()):
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
    """The child process that does the work of a step.

    Args:
        context: The step that runs.
        command: The process.
        extras: The work, as JSON values, which reaches the process as the extras of Pipes.

    Attributes:
        status: The exit status, negative for a signal; it is known once all messages have been yielded.
    """

    def __init__(self, context: Context, command: Sequence[str], extras: Mapping[str, object]) -> None:
        self._context = context
        self._command = command
        self._extras = extras
        self.status = 0

    def messages(self) -> Iterator[object]:
        """Starts the process, and yields its messages until it has ended; ends it where the caller stops reading."""
        reader = MessageFile()
        with _pipes(self._context, reader, self._extras) as session:
            seen = 0
            for _ in self._poll(session.get_bootstrap_env_vars()):
                reader.read()
                told = session.get_custom_messages()[seen:]
                seen += len(told)
                yield from told
        yield from session.get_custom_messages()[seen:]

    def _poll(self, environment: Mapping[str, str]) -> Iterator[None]:
        """Starts the child process, and yields every POLL_INTERVAL_S until it has ended."""
        with _started(self._command, environment) as process:
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
def _started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Yields the child, started in a process group that is killed at the end; after an error it gets time to stop."""
    process = start_with_lifeline(command, environment={**os.environ, **environment})
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


Shown: TypeAlias = dict[str, int | float | str | dg.MetadataValue]
MAX_RETRIES = 2
FIRST_PAUSE_S = 5

Event = dg.MaterializeResult[None] | dg.AssetObservation
PREVIEW = "a dry run: nothing was changed"


def report_metadata(report: Report) -> Shown:
    """Returns the metadata of a load or reload that only its report has, not the table's log."""
    counted: dict[str, int]
    ranges: dict[str, tuple[LoadedRange, ...]]
    if isinstance(report, LoadReport):
        counted = {"value_bytes": report.value_bytes, "lag": sum(report.lag.values())}
        ranges, lost = {"offsets": report.ranges}, report.skipped
    else:
        counted = {"removed_rows": report.removed_rows}
        ranges, lost = {"replaced": report.replaced, "backfilled": report.backfilled}, report.lost
    shown: Shown = {
        **counted,
        "seconds": round(report.seconds, 3),
        **{name: _table([asdict(one) for one in some]) for name, some in ranges.items()},
        "lost_offsets": _table([one._asdict() for one in lost]),
        "table": dg.MetadataValue.path(report.table),
        **_not_entered(report),
    }
    return {label(name): value for name, value in shown.items()}


def nothing_new_metadata(report: Report) -> Shown:
    """Returns the metadata of a load or reload that committed nothing."""
    lag: Shown = {"lag": sum(report.lag.values())} if isinstance(report, LoadReport) else {}
    return {"loaded": "nothing new", **lag, "table": dg.MetadataValue.path(report.table), **_not_entered(report)}


def _not_entered(report: Report) -> Shown:
    """Returns why the table is not in the catalog in which it is to be found; nothing where it is."""
    return {} if report.register_error is None else {"not entered in a catalog": report.register_error}


def _table(rows: Sequence[Mapping[str, object]]) -> dg.TableMetadataValue | str:
    return report_table(rows) if rows else "none"


def asset_events(context: Context, outcomes: Iterable[tuple[str, Outcome]]) -> Iterator[Event]:
    """Yields one Dagster event for each job that did not fail, as soon as its outcome is known.

    Args:
        context: The step that runs.
        outcomes: By key, what became of each job; a key is that of its asset, as `AssetKey.to_user_string` writes it.

    Raises:
        Failure: A job failed, and either no retry helps, or none is left.
        RetryRequested: All failures of the step may pass.
    """
    failed: dict[str, Failed] = {}
    jobs = 0
    for jobs, (key, outcome) in enumerate(outcomes, 1):  # noqa: B007  their number is needed after the last
        event = _event(context, dg.AssetKey.from_user_string(key), outcome)
        if isinstance(event, Failed):
            context.log.error("%s: %s", key, event.sentence)
            failed[key] = event
        else:
            yield event
    if failed:
        raise_failures(failed, jobs, context.retry_number)


def _event(context: Context, asset_key: dg.AssetKey, outcome: Outcome) -> Event | Failed:
    """Returns the event of a job's outcome, or a failure, as where a table can't be read after its commit."""
    if isinstance(outcome, Failed):
        return outcome
    if outcome.version is None:
        return dg.AssetObservation(asset_key, metadata=nothing_new_metadata(outcome))
    try:
        table = loaded_metadata(outcome.table, outcome.version, DISK, topic=topic_of(context, asset_key))
    except MillraceError as error:
        return failure_of(error)
    return dg.MaterializeResult(asset_key=asset_key, metadata={**table, **report_metadata(outcome)})


def topic_of(context: Context, asset_key: dg.AssetKey) -> dg.AssetKey | None:
    """Returns the asset that a table is loaded from, the only one upstream of it; None where there is not just one."""
    upstream = context.assets_def.asset_deps.get(asset_key, frozenset()) if context.has_assets_def else frozenset()
    return next(iter(upstream)) if len(upstream) == 1 else None


def raise_failures(failed: Mapping[str, Failed], jobs: int, retry_number: int) -> None:
    """Fails the step, or asks for another attempt where all failures may pass and fewer than MAX_RETRIES were made.

    Args:
        failed: By key, why jobs failed.
        jobs: The number of all jobs of the step.
        retry_number: The number of retries that were made.
    """
    failure = step_failure(failed, jobs)
    if failure.allow_retries and retry_number < MAX_RETRIES:
        raise dg.RetryRequested(MAX_RETRIES, FIRST_PAUSE_S * 2**retry_number) from failure
    raise failure


def step_failure(failed: Mapping[str, Failed], jobs: int) -> dg.Failure:
    """Returns the failure of a step: the sentence of its only job, or a line for each that failed, by key."""
    lines = [one.sentence if jobs == 1 else f"{key}: {one.sentence}" for key, one in failed.items()]
    if len(failed) > 1:
        lines.insert(0, f"{len(failed)} of {jobs} failed")
    return dg.Failure(
        "\n".join(lines),
        metadata={label: value for key, one in failed.items() for label, value in _shown(key, one).items()},
        allow_retries=all(one.may_pass for one in failed.values()),
    )


def _shown(key: str, failed: Failed) -> dict[str, str]:
    goes_on = {} if failed.option is None else {f"{key}: option that goes on": f"{failed.option}: true"}
    return {f"{key}: error": failed.error} | goes_on


def load_previews(
    context: Context, jobs: Sequence[LoadJob | ReloadJob], fs: FileSystem
) -> Iterator[dg.AssetObservation]:
    """Yields what each job would do now; at the end raises dg.Failure with the sentences of those that would fail."""
    failed: dict[str, Failed] = {}
    for job in jobs:
        try:
            metadata = _preview(job, fs)
        except MillraceError as error:
            failed[job.key] = failure_of(error)
            context.log.error("%s: %s", job.key, failed[job.key].sentence)  # noqa: TRY400 -- the sentence says all
        else:
            yield dg.AssetObservation(dg.AssetKey.from_user_string(job.key), description=PREVIEW, metadata=metadata)
    if failed:
        raise step_failure(failed, len(jobs))


def _preview(job: LoadJob | ReloadJob, fs: FileSystem) -> dict[str, dg.RawMetadataValue]:
    from millrace_pipelines.warehouse import preview_load, preview_reload  # noqa: PLC0415  with PySpark

    if isinstance(job, LoadJob):
        return _of_load(preview_load(job.options, fs=fs))
    return _of_reload(preview_reload(job.options, job.selection, fs=fs))


def _of_load(preview: LoadPreview) -> dict[str, dg.RawMetadataValue]:
    return {
        "offsets to load": preview.offsets,
        "ranges to load": report_table([span._asdict() for span in preview.ranges]),
        "lost offsets": report_table([span._asdict() for span in preview.lost]),
        "lag afterwards": sum(preview.lag.values()),
        "new ledger": preview.new_ledger or "none",
    }


def _of_reload(preview: ReloadPreview) -> dict[str, dg.RawMetadataValue]:
    return {
        "offsets to reload": preview.offsets,
        "ranges to replace": report_table([span._asdict() for span in preview.replaced]),
        "ranges to backfill": report_table([span._asdict() for span in preview.backfilled]),
        "lost offsets": report_table([span._asdict() for span in preview.lost]),
        "rows to remove": preview.removed_rows,
    }
