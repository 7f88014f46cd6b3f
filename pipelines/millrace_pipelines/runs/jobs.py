"""The jobs that a child process can do, each on one table: what `warehouse load` and `warehouse reload` do.

A job is written as JSON, in which `kind` says what is to be done. Another kind is another class here, a member of
`Job`, and a case of `child.do`. A job is data alone, so that the process that asks for it needs no Spark.

The process is given its jobs as the extras of Dagster's Pipes, and reports by custom messages of Pipes:

    {"jobs": [{"kind": "load", "key": …, "options": {…}}, …], "master": …, "spark_settings": {…}}
    {"key": …}                    the job begins
    {"key": …, "report": {…}}     it is done
    {"key": …, "failed": {…}}     it failed

Both pass through files that only this user can read, so that no setting of Spark is seen on a command line.

Why a job failed is the sentence of its error, as the command line prints it, and the option with which a load goes on
in spite of it, as a configuration spells it. Where the job's process, or Spark's JVM, has ended, the sentence says how.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from millrace.client.answers import is_retriable
from millrace.errors import MillraceError
from millrace_pipelines.spark.errors import Accept, AcceptableError
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport, ReloadReport

GOES_ON = "the table has the whole load or nothing of it, and another run goes on from there"
PROCESS_ENDED = "ProcessEnded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The failure of a job.

    Attributes:
        sentence: What is wrong, and how to go on.
        error: The name of the error's class; PROCESS_ENDED where a process ended.
        may_pass: Whether another attempt may succeed, by the rule of continuous loads (`is_retriable`).
        option: The option with which a load goes on in spite of the error, if there is one.
    """

    sentence: str
    error: str
    may_pass: bool
    option: Accept | None = None


def failure_of(error: Exception) -> Failed:
    """Returns the failure that an error means; an error that is not Millrace's is named by its class."""
    sentence = str(error) if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"
    option = error.option if isinstance(error, AcceptableError) else None
    if option is not None:
        sentence = sentence.replace(option.flag, f"`{option}: true`")
    return Failed(sentence=sentence, error=type(error).__name__, may_pass=is_retriable(error), option=option)


def jvm_ended(status: int) -> Failed:
    """Returns the failure of a job during which Spark's JVM ended; another attempt starts another JVM."""
    return Failed(sentence=f"Spark's JVM {ending(status)}; {GOES_ON}", error=PROCESS_ENDED, may_pass=True)


def unreported(status: int, *, has_begun: bool) -> Failed:
    """Returns the failure of a job whose process ended without a report; it may pass if a signal ended the process."""
    when = "without a report" if has_begun else "before it began"
    sentence = f"the process of the load {ending(status)} {when}; {GOES_ON}"
    return Failed(sentence=sentence, error=PROCESS_ENDED, may_pass=status < 0)


def ending(status: int) -> str:
    """Returns how a process ended, in words; `status` is its exit status, or a signal's number negated."""
    if status >= 0:
        return f"ended with exit status {status}"
    if -status == signal.SIGKILL:
        return "was killed (SIGKILL), perhaps because the machine's memory ran out,"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


Report: TypeAlias = LoadReport | ReloadReport


@dataclass(frozen=True, kw_only=True)
class LoadJob:
    """A load: it appends the records that the topic has and the table lacks.

    Attributes:
        key: Names the job among those of its run; loads of assets take the asset key as a string.
        options: What to load where; its `master` and `spark_settings` have no effect, as all jobs share one session.
    """

    key: str
    options: LoadOptions
    kind: Literal["load"] = "load"


@dataclass(frozen=True, kw_only=True)
class ReloadJob:
    """A reload: it reads a part of the topic again, and replaces the rows that the table has of it.

    Attributes:
        key: Names the job among those of its run.
        options: Which topic and table; `master` and `spark_settings` have no effect.
        selection: Which part of the topic; `until_table_begins` makes it a backfill.
    """

    key: str
    options: LoadOptions
    selection: Selection = field(default_factory=Selection)
    kind: Literal["reload"] = "reload"


Job: TypeAlias = Annotated[LoadJob | ReloadJob, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True)
class Work:
    """The jobs of a child process, and the Spark session that they share.

    Attributes:
        jobs: What to do, one after the other.
        master: Spark's master; None for all cores of this machine.
        spark_settings: Settings of the session.
        stores: Options of stores by the beginnings of addresses, with secrets as env:NAME.
    """

    jobs: tuple[Job, ...]
    master: str | None = None
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    stores: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message of the child on a job: it has ended with a `report` or has `failed`; with neither, it begins."""

    key: str
    report: Mapping[str, object] | None = None
    failed: Failed | None = None


WORK = TypeAdapter(Work)
MESSAGE = TypeAdapter(Message)
REPORTS: Mapping[str, TypeAdapter[Report]] = {"load": TypeAdapter(LoadReport), "reload": TypeAdapter(ReloadReport)}


def write_report(job: Job, report: Report) -> Mapping[str, object]:
    """Returns a job's report as JSON values, which `read_report` reads back."""
    written: Mapping[str, object] = REPORTS[job.kind].dump_python(report, mode="json")
    return written


def read_report(job: Job, written: Mapping[str, object]) -> Report:
    """Returns the report that `write_report` turned into JSON values for a job of this class."""
    return REPORTS[job.kind].validate_python(written)
