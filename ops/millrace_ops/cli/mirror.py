"""`millrace mirror`: runs a mirror, which keeps topics of source clusters in a target; its sub-commands see to it.

The group's own options run the mirror; each sub-command has a module of its own, and is registered here.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from millrace_ops.cli import mirror_audit, mirror_pause, mirror_run, mirror_status, mirror_switch
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.mirror_options import (
    ConfigFile,
    KeepNames,
    Source,
    SourceClientConfig,
    Target,
    TargetClientConfig,
    Topics,
    source_options,
)

app = Commands(help="Keep topics of other clusters in this one, each record exactly once.")
app.command("status")(mirror_status.status)
app.command("pause")(mirror_pause.pause)
app.command("resume")(mirror_pause.resume)
app.command("switch-over")(mirror_switch.switch_over)
app.command("switch-back")(mirror_switch.switch_back)
app.command("audit")(mirror_audit.audit)


@app.callback(invoke_without_command=True)
def mirror(
    context: typer.Context,
    *,
    source: Source = None,
    source_client_config: SourceClientConfig = None,
    target: Target = None,
    target_client_config: TargetClientConfig = None,
    topics: Topics = None,
    keep_names: KeepNames = False,
    config: ConfigFile = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="End when all that the sources have now is mirrored; status 1 if some is not."),
    ] = False,
    throttle: Annotated[
        int | None, typer.Option(metavar="BYTES", min=1, help="The most that is read in a second, of each source.")
    ] = None,
    admin: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where /metrics, /healthz and /readyz are served.")
    ] = None,
    accept_lost_offsets: Annotated[
        bool,
        typer.Option("--accept-lost-offsets", help="Go on behind offsets that were deleted before they were mirrored."),
    ] = False,
    accept_recreated_topic: Annotated[
        bool, typer.Option("--accept-recreated-topic", help="Go on with a topic that was deleted and created again.")
    ] = False,
    accept_truncated_log: Annotated[
        bool,
        typer.Option("--accept-truncated-log", help="Go on where the source's log was cut below what is mirrored."),
    ] = False,
) -> None:
    """Keep topics of other clusters in this one, each record exactly once; Ctrl-C ends it."""
    if context.invoked_subcommand is not None:
        return
    if source is None and target is None and config is None:
        print(context.get_help())
        return
    options: dict[str, Any] = {
        "sources": source_options(source or (), source_client_config or ()),
        "target": _given(bootstrap=target, client_config=target_client_config),
    } | _given(
        topics=topics,
        keep_names=keep_names or None,
        throttle_bytes_per_s=throttle,
        accept_lost_offsets=accept_lost_offsets or None,
        accept_recreated_topic=accept_recreated_topic or None,
        accept_truncated_log=accept_truncated_log or None,
    )
    mirror_run.run(None if config is None else str(config), options, once=once, admin=admin)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
