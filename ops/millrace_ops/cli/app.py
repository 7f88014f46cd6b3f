"""The tree of `millrace`'s sub-commands. Each lives in a module that imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperCommand

from millrace import __version__, kernel
from millrace_ops.cli import (
    acls,
    bench,
    brokers,
    brokers_adopt,
    brokers_drain,
    brokers_elect,
    brokers_strays,
    configs,
    consume,
    dead_letters,
    demo,
    doctor,
    dump,
    groups,
    history,
    import_legacy,
    monitoring,
    offsets,
    produce,
    quotas,
    tokens,
    topics,
    topics_reassign,
    up,
    users,
    verify,
    warehouse,
    warehouse_modes,
    warehouse_upkeep,
    zookeeper,
)
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.profile import use_profile

AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def broker(context: typer.Context) -> None:
    """Run a broker: store logs and speak the Kafka protocol."""
    from millrace_broker.__main__ import main

    raise typer.Exit(main(context.args))


app = Commands(
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    help="A log platform: a broker that speaks the Kafka protocol, and its topics as warehouse tables.",
)
app.command("broker", cls=TyperCommand, context_settings=AS_GIVEN, add_help_option=False)(broker)
brokers.app.command("adopt")(brokers_adopt.adopt)
brokers.app.command("elect")(brokers_elect.elect)
brokers.app.command("drain")(brokers_drain.drain)
brokers.app.command("strays")(brokers_strays.strays)
app.add_typer(brokers.app, name="brokers")
topics.app.command("reassign")(topics_reassign.reassign)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(quotas.app, name="quotas")
app.add_typer(users.app, name="users")
app.add_typer(acls.app, name="acls")
app.add_typer(groups.app, name="groups")
app.add_typer(offsets.app, name="offsets")
app.add_typer(tokens.app, name="tokens")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("dump")(dump.dump)
app.command("import-legacy")(import_legacy.import_legacy)
app.command("verify")(verify.verify)
app.command("doctor")(doctor.doctor)
app.add_typer(history.app, name="history")
for command in (*warehouse_modes.COMMANDS, *warehouse_upkeep.COMMANDS):
    warehouse.app.command()(command)
app.add_typer(warehouse.app, name="warehouse")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(zookeeper.app, name="zookeeper")
app.command("up")(up.up)
app.command("demo")(demo.demo)
app.command("monitoring")(monitoring.monitoring)
app.command("bench")(bench.bench)


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
) -> None:
    """Parse what stands before the sub-command."""
