"""`millrace up`: runs the whole platform in the foreground until Ctrl-C."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from millrace.config import MAX_PORT
from millrace_ops.cli.options import CLOCK, FS, MAX_BROKERS
from millrace_ops.cli.output import print_table
from millrace_ops.cli.platform import DIRECTORY

if TYPE_CHECKING:
    from rich.table import Table

    from millrace_ops.supervisor.platform import Platform, PlatformOptions

Secure = Annotated[
    bool, typer.Option("--secure", help="TLS, users and rights for all that brokers serve; made at the first start.")
]
ZooKeeperPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MAX_PORT,
        help="Port of the ZooKeeper that is started; 0 takes a free one. By default a folder keeps its port.",
    ),
]
HasConsole = Annotated[
    bool, typer.Option("--console", help="Serve the console in the browser at the admin endpoint, read-only.")
]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The broker's properties, by Kafka's names.", dir_okay=False)
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One property of the broker.")
]
Mirror = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Settings of a mirror (TOML), which runs too; its target is this platform, unless the file names another.",
        dir_okay=False,
    ),
]


def up(
    *,
    directory: Annotated[
        str, typer.Option("--dir", help="The folder for all state; created if it is missing.")
    ] = DIRECTORY,
    brokers: Annotated[
        int, typer.Option(min=1, max=MAX_BROKERS, help="How many brokers; each further one takes the next ports.")
    ] = 1,
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
    dagster_host: Annotated[
        str, typer.Option(help="Where Dagster's UI listens. It asks for no password: whoever reaches it launches runs.")
    ] = "127.0.0.1",
    dagster_port: Annotated[
        int, typer.Option(min=0, max=MAX_PORT, help="Port of Dagster's UI; 0 takes a free one.")
    ] = 3000,
    dagster: Annotated[bool, typer.Option(help="Run Dagster too.")] = True,
    zookeeper: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[/chroot]", help="A ZooKeeper that runs already; else one is started."),
    ] = None,
    zookeeper_port: ZooKeeperPort = None,
    master: Annotated[str, typer.Option(help="The Spark master that loads run on.")] = "local[*,3]",
    warm: Annotated[
        bool, typer.Option(help="Keep a Spark running, so that loads don't wait for one; it takes a gigabyte.")
    ] = False,
    console: HasConsole = False,
    secure: Secure = False,
    mirror: Mirror = None,
    config: Config = None,
    assignments: Assignments = None,
) -> None:
    """Run ZooKeeper, a broker or several, and Dagster, until Ctrl-C.

    With several, a broker that ends is started again, as a mirror is. With --secure the administrator's client
    properties are in DIR/secrets/admin.properties, for --client-config.

    The environment variable MILLRACE_ADMIN_TOKEN gives the admin endpoint a token, and MILLRACE_DAGSTER_POSTGRES is the
    URL of a Postgres database for Dagster: postgresql://USER:PASSWORD@HOST/DATABASE.
    """
    from millrace_ops.supervisor.platform import PlatformOptions, broker_properties

    options = PlatformOptions(
        directory=directory,
        brokers=brokers,
        listen=listen,
        advertised=advertised,
        admin=admin,
        dagster_host=dagster_host,
        dagster_port=dagster_port if dagster else None,
        zookeeper=zookeeper,
        zookeeper_port=zookeeper_port,
        master=master,
        warm=warm,
        broker_properties=broker_properties(config, assignments or (), secure=secure),
        admin_token=os.environ.get("MILLRACE_ADMIN_TOKEN", "").strip(),
        postgres_url=_postgres_url() if dagster else "",
        console=console,
        secure=secure,
        mirror=None if mirror is None else str(mirror),
    )
    _run(options)


def _postgres_url() -> str:
    from millrace.extras import require
    from millrace_ops.supervisor.dagster_instance import POSTGRES_VARIABLE

    url = os.environ.get(POSTGRES_VARIABLE, "").strip()
    if url:
        require(POSTGRES_VARIABLE, "postgres")
    return url


def _run(options: PlatformOptions) -> None:
    from millrace_ops.supervisor.health import HealthWatch
    from millrace_ops.supervisor.platform import Platform

    console = Console()
    try:
        with Platform(options, FS, CLOCK, _say_ready) as platform:
            with console.status("starting ZooKeeper, the broker and Dagster"):
                platform.start()
            print("Millrace is up")
            print_table(("part", "address"), _addresses(platform))
            print("Ctrl-C stops all of it.", flush=True)
            with HealthWatch(platform.health) as watch, shown_health(console, lambda: watch.latest) as show:
                platform.supervisor.wait(show)
    except KeyboardInterrupt:
        console.print("stopped")


def _say_ready(name: str, took_ms: int) -> None:
    """Prints that a part is up: the first start takes a minute, and silence looks like a fault."""
    print(f"{name} is up after {took_ms / 1000:.0f} s", flush=True)


def _addresses(platform: Platform) -> list[tuple[str, str]]:
    addresses = platform.addresses
    further = [
        ("console", addresses.console),
        ("the console's token", platform.console_token_file),
        ("client properties", addresses.client_config),
    ]
    return [
        *((one.place.part, one.broker) for one in addresses.brokers),
        ("ZooKeeper", addresses.zookeeper),
        ("Dagster UI", addresses.dagster or "not started"),
        *(
            ("metrics" if one.place.part == "broker" else f"metrics of {one.place.part}", f"{one.admin}/metrics")
            for one in addresses.brokers
        ),
        ("state and logs", platform.directory),
        *((part, address) for part, address in further if address is not None),
    ]


WELL = "well"


@contextmanager
def shown_health(console: Console, latest: Callable[[], Mapping[str, str] | None]) -> Iterator[Callable[[], None]]:
    """Yields a function that shows the newest health of all parts, if it has changed since it was shown."""
    if not console.is_terminal:
        yield _Changes(latest).show
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        shown: list[Mapping[str, str]] = [{}]

        def show() -> None:
            health = latest()
            if health is not None and health != shown[-1]:
                shown[:] = [health]
                live.update(_table(health), refresh=True)

        yield show


class _Changes:
    """Prints a line for each part whose health changes; the first line names all parts that are well."""

    def __init__(self, latest: Callable[[], Mapping[str, str] | None]) -> None:
        self._latest = latest
        self._shown: Mapping[str, str] | None = None

    def show(self) -> None:
        health = self._latest()
        if health is None or health is self._shown:
            return
        for line in changes(self._shown, health):
            print(line, flush=True)
        self._shown = health


def changes(before: Mapping[str, str] | None, health: Mapping[str, str]) -> list[str]:
    """Returns a line for each part whose health has changed; `before` is None at the start."""
    if before is None:
        well = [part for part, problem in health.items() if not problem]
        first = [f"{WELL}: {', '.join(well)}"] if well else []
        return first + [f"{part}: {problem}" for part, problem in health.items() if problem]
    changed = {part: problem for part, problem in health.items() if before.get(part) != problem}
    return [f"{part}: {problem or 'well again'}" for part, problem in changed.items()]


def _table(health: Mapping[str, str]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("part", "health", box=box.SIMPLE_HEAD, pad_edge=False)
    for part, problem in health.items():
        table.add_row(part, Text(problem or WELL, style="red" if problem else "green"))
    return table
