"""The two forms of `millrace warehouse load`, by TOPIC and --table or by --defs, and what goes with neither."""

from __future__ import annotations

import typer

SAID_BY_FILE = ("topic", "table", "schema", "column", "isolation", "mode", "compression", "group")
TOLD_BY_FILE = ("metrics", "textfile")


def check_form(context: typer.Context, continuous: bool, *, dry_run: bool) -> None:
    """Raises typer.BadParameter for options that don't go together, naming the one that is wrong or missing."""
    values = context.params
    typed = {name for name, value in values.items() if value and _is_typed(context, name)}
    if values["defs"] is not None:
        for name in (one for one in SAID_BY_FILE if one in typed):
            raise typer.BadParameter("not together with --defs, whose file says it", param_hint=_hint(name))
        for name in (one for one in TOLD_BY_FILE if one in typed):
            words = "not together with --defs: load_metrics in its file names a folder for the metrics of each table"
            raise typer.BadParameter(words, param_hint=_hint(name))
    for name in ("topic", "table"):
        if values["defs"] is None and values[name] is None:
            raise typer.BadParameter("missing; or --defs FILE names them", param_hint=_hint(name))
    if dry_run and continuous:
        raise typer.BadParameter("a dry run is of one load", param_hint="--continuous")
    if values["textfile"] is not None and (dry_run or continuous):
        raise typer.BadParameter("not together with --dry-run or --continuous", param_hint="--textfile")


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _hint(name: str) -> str:
    return "TOPIC" if name == "topic" else f"--{name}"
