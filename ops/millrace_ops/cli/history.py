"""`millrace history`: judges a recorded history of sends and polls (docs/histories.md)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import Json
from millrace_ops.cli.output import print_json, print_table

app = Commands(help="Judge histories of sends and polls: is the log what its clients were told?")


@app.callback()
def history() -> None:
    """Keep the sub-command's name."""


@app.command("check")
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A history, one event a line.")],
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="ANOMALY", help="A kind of anomaly that what was tested may have; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Name every anomaly of a history; exit status 1 where there is one."""
    histories = import_module("millrace_tools.histories.check")
    try:
        allowed = [histories.Anomaly(one) for one in allow or ()]
    except ValueError as error:
        raise typer.BadParameter(f"{error}; docs/histories.md has a table of them", param_hint="--allow") from None
    with path.open("rb") as lines:
        operations = histories.read_history(lines)
    findings = histories.check(operations, allowed=allowed)
    if as_json:
        for finding in findings:
            print_json(asdict(finding))
    else:
        _show(len(operations), findings)
    raise typer.Exit(int(bool(findings)))


def _show(operations: int, findings: list[Any]) -> None:
    for finding in findings:
        print(finding)
    if findings:
        print_table(("anomaly", "findings"), sorted(Counter(finding.anomaly for finding in findings).items()))
    else:
        print(f"{operations} operations, no anomaly")
