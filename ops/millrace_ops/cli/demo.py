"""`millrace demo`: takes a year of flights from a producer into a warehouse table."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from millrace_ops.cli.options import MAX_BROKERS


def demo(
    *,
    directory: Annotated[
        str, typer.Option("--dir", help="The folder of the demo, emptied each time; the table stays in it.")
    ] = ".millrace/demo",
    brokers: Annotated[int, typer.Option(min=1, max=MAX_BROKERS, help="How many brokers.")] = 1,
    secure: Annotated[bool, typer.Option("--secure", help="On a hardened platform: TLS, users and rights.")] = False,
) -> None:
    """Take a year of flights from a producer to a queried table.

    336,776 flights are loaded twice under Dagster, and every figure is checked; exit status 0 if all are right.
    """
    from millrace.clock import SystemClock
    from millrace.fs import OsFileSystem
    from millrace_ops.demo.demo import run_demo
    from millrace_ops.demo.flights import read_airlines
    from millrace_ops.demo.report import print_outcome

    console = Console()
    outcome = run_demo(directory, console, OsFileSystem(), SystemClock(), brokers=brokers, secure=secure)
    print_outcome(console, outcome, read_airlines())
    if not outcome.is_right:
        raise typer.Exit(1)
