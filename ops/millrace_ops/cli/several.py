"""Several names in one command: all are tried, and the exit status is 0 only if each of them went well."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import typer

from millrace.errors import BrokerUnreachableError, MillraceError


def for_each(names: Iterable[str], action: Callable[[str], None]) -> None:
    """Runs an action on every name, each once; writes a line to stderr for each error.

    Raises:
        BrokerUnreachableError: At once, because the other names could not reach a broker either.
        typer.Exit: With status 1 at the end, if an action failed.
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
