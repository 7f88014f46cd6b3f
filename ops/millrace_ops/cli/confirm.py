"""Asks the user before a command does what can't be undone."""

from __future__ import annotations

import sys


def confirm(question: str, *, is_confirmed: bool) -> bool:
    """Returns whether to go on: either it was confirmed beforehand or the user says yes.

    The question goes to stderr, because a program may read stdout. An empty answer means no.

    Raises:
        SetupError: There is no terminal to ask at.
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
