"""The root of the tree of errors (`millrace.errors`)."""

from __future__ import annotations

from typing import ClassVar

from millrace.error_codes import ErrorCode


class MillraceError(Exception):
    """Root of the tree. `code` goes on the wire; `retriable` says whether the same call may succeed later."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False


def is_unforeseen(error: BaseException) -> bool:
    """Returns whether an error is none of this tree, so that a log needs its traceback and not its sentence alone."""
    return not isinstance(error, MillraceError)
