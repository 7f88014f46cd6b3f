"""`millrace mirror`: runs a mirror, which keeps topics of source clusters in a target cluster; its sub-commands see to it.

The group's own options run the mirror; each sub-command has a module of its own, and is registered here.
"""

from __future__ import annotations

import typer

from millrace_ops.cli import mirror_audit
from millrace_ops.cli.commands import Commands

app = Commands(help="Keep topics of other clusters in this one, each record exactly once.")
app.command("audit")(mirror_audit.audit)


@app.callback(invoke_without_command=True)
def mirror(context: typer.Context) -> None:
    """Keep topics of other clusters in this one, each record exactly once."""
    if context.invoked_subcommand is None:
        print(context.get_help())
