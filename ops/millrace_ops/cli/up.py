"""`millrace up`: the whole platform in the foreground until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from millrace_ops.platform.platform import Addresses


def up(
    *,
    directory: Annotated[
        str, typer.Option("--dir", help="The folder for all state; created if it is missing.")
    ] = ".millrace/up",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the broker listens; port 0 takes a free one.")
    ] = "127.0.0.1:9092",
    advertised: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where clients reach the broker; needed where it listens everywhere."),
    ] = None,
    admin: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where health, metrics and maintenance are served.")
    ] = "127.0.0.1:9644",
    dagster_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of Dagster's UI; 0 takes a free one.")
    ] = 3000,
    dagster: Annotated[bool, typer.Option(help="Run Dagster too.")] = True,
    zookeeper: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[/chroot]", help="A ZooKeeper that runs already; else one is started."),
    ] = None,
    master: Annotated[str, typer.Option(help="The Spark master that loads run on.")] = "local[*,3]",
) -> None:
    """Run ZooKeeper, a broker and Dagster; Ctrl-C stops all of it."""
    from millrace_ops.platform.platform import Platform, PlatformOptions

    options = PlatformOptions(
        directory=directory,
        listen=listen,
        advertised=advertised,
        admin=admin,
        dagster_port=dagster_port if dagster else None,
        zookeeper=zookeeper,
        master=master,
    )
    console = Console()
    try:
        with Platform(options) as platform:
            with console.status("starting ZooKeeper, the broker and Dagster"):
                platform.start()
            console.print(_address_table(platform.addresses, platform.directory))
            console.print("Ctrl-C stops all of it.")
            platform.supervisor.wait()
    except KeyboardInterrupt:
        console.print("stopped")


def _address_table(addresses: Addresses, directory: str) -> Table:
    table = Table("part", "address", title="Millrace is up", title_justify="left")
    table.add_row("broker", addresses.broker)
    table.add_row("ZooKeeper", addresses.zookeeper)
    table.add_row("Dagster UI", addresses.dagster or "not started")
    table.add_row("metrics", f"{addresses.admin}/metrics")
    table.add_row("state and logs", directory)
    return table
