"""What ticks of sensors share: their texts, the one sentence of a tick that fails, cursors, and the statuses of runs.

A cursor is JSON, compressed, as Dagster keeps a copy with each tick: 10,000 topics with a digest of eight letters each
take about 100 kB.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from millrace.errors import MillraceError
from millrace.json_values import Json
from millrace_pipelines.dagster_internals import DagsterUserCodeProcessError

FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
UNFINISHED = [status for status in dg.DagsterRunStatus if status not in FINISHED]


@contextmanager
def failing_in_words() -> Iterator[None]:
    """Turns an error of Millrace inside the context into a failure of the tick that shows the error's sentence alone.

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


def pack_cursor(value: Json) -> str:
    """Returns a JSON value as the text of a sensor's cursor, which `unpack_cursor` reads back."""
    return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode())).decode()


def unpack_cursor(text: str | None) -> Json:
    """Returns what a cursor holds; None for no cursor, and for a text that `pack_cursor` did not write."""
    try:
        value: Json = json.loads(zlib.decompress(base64.b64decode(text or "", validate=True)))
    except (ValueError, zlib.error):
        return None
    return value
