"""`millrace broker`: runs the broker process, with the arguments of `python -m millrace_broker`."""

from __future__ import annotations

import typer


def broker(context: typer.Context) -> None:
    """Run a broker: store logs and speak the Kafka protocol."""
    from millrace_broker.__main__ import main

    raise typer.Exit(main(context.args))
