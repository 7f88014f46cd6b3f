"""Why a job failed, in words: the sentence of its error, and the option with which a load goes on in spite of it.

The sentence is the one that the command line prints, with the option as a configuration spells it. Where the job's
process, or Spark's JVM, has ended instead, the sentence says how.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from millrace.client.answers import is_retriable
from millrace.errors import MillraceError
from millrace_pipelines.spark.errors import Accept, AcceptableError

GOES_ON = "the table has the whole load or nothing of it, and another run goes on from there"
PROCESS_ENDED = "ProcessEnded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A job that failed.

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
    """Returns what an error says; one that is not Millrace's is named by its class."""
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
    """Returns how a process ended, by its exit status or, negative, by the number of a signal."""
    if status >= 0:
        return f"ended with exit status {status}"
    if -status == signal.SIGKILL:
        return "was killed (SIGKILL), perhaps because the machine's memory ran out,"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
