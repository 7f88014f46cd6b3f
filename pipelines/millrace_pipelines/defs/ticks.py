"""The texts that ticks of sensors show: numbers with their nouns, and the one sentence of a tick that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster_shared.error import SerializableErrorInfo

from millrace.errors import MillraceError
from millrace_pipelines.dagster_internals.ticks_and_checks import DagsterUserCodeProcessError


@contextmanager
def failing_in_words() -> Iterator[None]:
    """Makes an error of Millrace the failure of a tick, as its sentence alone.

    For any other exception Dagster shows the traceback, with its own frames. DagsterUserCodeProcessError is for an
    error of which another process has sent the text, and Dagster shows that text alone.
    """
    try:
        yield
    except MillraceError as error:
        sentence = SerializableErrorInfo(message=str(error), stack=[], cls_name=None)
        told = DagsterUserCodeProcessError(  # type: ignore[no-untyped-call]  # Dagster's own, without types
            str(error), user_code_process_error_infos=[sentence]
        )
        raise told from error


def counted(number: int, noun: str) -> str:
    """Returns the number with its noun, in the plural from two on: "1 topic", "12 topics"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
