"""Several names in one command: all are tried, and the exit status is 0 only where each of them went well."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import typer

from millrace.errors import BrokerUnreachableError, MillraceError


def for_each(names: Iterable[str], action: Callable[[str], None]) -> None:
    """Run an action on every name, each once; an error is a line on stderr.

    Raises:
        BrokerUnreachableError: at once, as the other names would find nobody either.
        typer.Exit: with status 1 at the end, where an action failed.
    """
    has_failed = False
    for name in dict.fromkeys(names):
        try:
            action(name)
        except BrokerUnreachableError:
            raise
        except MillraceError as error:
            sys.stdout.flush()
            print(f"millrace: {error}", file=sys.stderr)
            has_failed = True
    if has_failed:
        raise typer.Exit(1)
