"""The tree of `millrace`'s sub-commands. Each lives in a module that imports what it needs when it runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from millrace import __version__, kernel
from millrace.errors import SetupError
from millrace_ops.cli import (
    acls,
    brokers,
    cluster,
    configs,
    consume,
    dead_letters,
    doctor,
    dump,
    groups,
    import_legacy,
    mirror,
    offsets,
    offsets_from_legacy,
    produce,
    quotas,
    tokens,
    topics,
    up,
    users,
    verify,
    warehouse,
    warehouse_modes,
    warehouse_pack,
    warehouse_switch,
    zookeeper,
)
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import CLOCK, FS, MAX_BROKERS, Json
from millrace_ops.cli.output import print_json, print_table
from millrace_ops.cli.platform import use_platform
from millrace_ops.cli.profile import use_profile
from millrace_ops.cli.warehouse_engine import Settings, spark_settings

AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def broker(context: typer.Context) -> None:
    """Run a broker: store logs and speak the Kafka protocol."""
    from millrace_broker.__main__ import main

    raise typer.Exit(main(context.args))


def demo(
    *,
    directory: Annotated[
        str, typer.Option("--dir", help="The folder of the demo, emptied each time; the table stays in it.")
    ] = ".millrace/demo",
    brokers: Annotated[int, typer.Option(min=1, max=MAX_BROKERS, help="How many brokers.")] = 1,
    secure: Annotated[bool, typer.Option("--secure", help="On a hardened platform: TLS, users and rights.")] = False,
    bootstrap: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[,...]", help="A Kafka that runs already, in place of brokers of the demo's."),
    ] = None,
    client_config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its client properties of security; send:FILE for a cluster's.")
    ] = None,
    warehouse: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the tables go: a folder, or s3://bucket/path.")
    ] = None,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*,3]",
    conf: Settings = None,
) -> None:
    """Take a year of flights from a producer to a queried table.

    336,776 flights are loaded twice under Dagster, and every figure is checked; exit status 0 if all are right.
    Source, engine and store are this machine's unless options give other addresses.
    """
    from rich.console import Console

    from millrace_ops.demo.demo import Elsewhere, run_demo
    from millrace_ops.demo.flights import read_airlines
    from millrace_ops.demo.report import print_outcome

    console = Console()
    elsewhere = Elsewhere(
        bootstrap=bootstrap,
        client_config=client_config,
        warehouse=warehouse,
        master=master,
        spark=spark_settings(conf),
    )
    outcome = run_demo(directory, console, FS, CLOCK, brokers=brokers, secure=secure, elsewhere=elsewhere)
    print_outcome(console, outcome, read_airlines())
    if not outcome.is_right:
        raise typer.Exit(1)


def monitoring(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go; made if it is missing.")],
) -> None:
    """Write dashboards for Grafana and alert rules for Prometheus; files of their names are replaced."""
    from millrace_ops.monitoring.grafana import monitoring_files

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in monitoring_files().items():
            (directory / name).write_text(text, encoding="utf-8")
            print(directory / name)
    except OSError as error:
        raise SetupError(f"{error.filename}: {error.strerror}") from error


Benchmark = StrEnum(
    "Benchmark",
    "APPEND STORAGE COMPACTION PRODUCE FETCH LATENCY CONNECTIONS STALLS PARTITIONS "
    "LOAD COMMITS UPSERT TABLES DECODE TRANSACTIONS REPLICATION FAILOVER MIRROR SECURITY CLIENT METRICS CONSOLE "
    "DAGSTER",
)


def bench(
    name: Annotated[Benchmark, typer.Argument(help=f"What to measure: {', '.join(Benchmark)}.", show_default=False)],
    *,
    peer: Annotated[
        str | None,
        typer.Option(
            help="Measure this beside it in the same run: mock, kafka, kafka-3.9, spark or mirrormaker2 "
            "(`make peers` first), rest or connect (`make iceberg iceberg-connect`)."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="For load and upsert: in this store, s3://bucket/path, beside a folder."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="For load: into this format of tables, iceberg, beside Delta's."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to this file too.")
    ] = None,
) -> None:
    """Measure on loopback, and print each figure beside its yardstick."""
    harness = import_module("millrace_benchmarks.harness")
    if form is not None and form not in harness.formats(name):
        raise typer.BadParameter(f"{form!r} is no format of bench {name}", param_hint="--format")
    if peer is not None and peer not in harness.peers(name, form):
        raise typer.BadParameter(f"{peer!r} is no peer of bench {name}", param_hint="--peer")
    if store is not None and (peer is not None or form is not None or not harness.takes_store(name)):
        raise typer.BadParameter("load and upsert take a store, without a peer or a format", param_hint="--store")
    harness.measure(name, peer, json_file, store, form)


def history() -> None:
    """Have Typer keep `check` as a sub-command, which it would drop for an application with one command."""


def check_history(
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
        for finding in findings:
            print(finding)
        if findings:
            print_table(("anomaly", "findings"), sorted(Counter(one.anomaly for one in findings).items()))
        else:
            print(f"{len(operations)} operations, no anomaly")
    raise typer.Exit(int(bool(findings)))


app = Commands(
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    help="A log platform: a broker that speaks the Kafka protocol, and its topics as warehouse tables.",
)
app.command("broker", cls=TyperCommand, context_settings=AS_GIVEN, add_help_option=False)(broker)
app.add_typer(cluster.app, name="cluster")
app.add_typer(brokers.app, name="brokers")
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(quotas.app, name="quotas")
app.add_typer(users.app, name="users")
app.add_typer(acls.app, name="acls")
app.add_typer(groups.app, name="groups")
offsets.app.command("from-legacy")(offsets_from_legacy.from_legacy)
app.add_typer(offsets.app, name="offsets")
app.add_typer(tokens.app, name="tokens")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("dump")(dump.dump)
app.command("import-legacy")(import_legacy.import_legacy)
app.command("verify")(verify.verify)
app.command("doctor")(doctor.doctor)
histories = Commands(help="Judge histories of sends and polls: is the log what its clients were told?")
histories.callback()(history)
histories.command("check")(check_history)
app.add_typer(histories, name="history")
for command in warehouse_modes.COMMANDS:
    warehouse.app.command()(command)
warehouse.app.command("pack")(warehouse_pack.pack)
warehouse.app.command("switch")(warehouse_switch.switch)
app.add_typer(warehouse.app, name="warehouse")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(zookeeper.app, name="zookeeper")
app.add_typer(mirror.app, name="mirror")
app.command("up")(up.up)
app.command("demo")(demo)
app.command("monitoring")(monitoring)
app.command("bench")(bench)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"millrace {__version__} (record kernel: {kernel.description})")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Show the version and exit.",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="MILLRACE_PROFILE",
            help="Take addresses from this profile of the profile file (docs/command-line.md).",
            is_eager=True,
            callback=use_profile,
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            envvar="MILLRACE_PLATFORM",
            help="Take addresses from the platform that `millrace up --dir DIR` runs, before those of a profile.",
            is_eager=True,
            callback=use_platform,
        ),
    ] = None,
) -> None:
    """Handle the options that stand before the sub-command."""
