"""The question that stands before a command whose work can't be undone."""

from __future__ import annotations

import sys


def confirm(question: str, *, is_confirmed: bool) -> bool:
    """Whether to go on: it is confirmed already, or the user says so. SetupError without a terminal to ask at.

    The question goes to stderr, as stdout may be read by a program; no answer means no.
    """
    from rich.console import Console
    from rich.prompt import Confirm

    from millrace.errors import SetupError

    if is_confirmed:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise SetupError(f"{question} There is no terminal to answer at; --yes confirms it")
    try:
        return Confirm.ask(question, default=False, console=Console(stderr=True, markup=False, highlight=False))
    except EOFError:
        return False
