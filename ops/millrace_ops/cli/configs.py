"""`millrace configs`: describes, sets and unsets properties of topics, brokers and groups, and levels of loggers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import InvalidConfigError
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig, Json, open_cluster
from millrace_ops.cli.output import print_json, print_table

if TYPE_CHECKING:
    from millrace.client import Configs, Property, ResourceKind

app = Commands(help="Describe and change the configuration of topics, brokers and groups, and what brokers log.")
Topic = Annotated[str | None, typer.Option(metavar="TOPIC", help="The configuration of this topic.")]
Broker = Annotated[
    str | None, typer.Option(metavar="ID", help="Of this broker, or `all`: the live one of all brokers.")
]
BrokerLoggers = Annotated[
    str | None, typer.Option(metavar="ID", help="The levels of this broker's loggers, until it stops.")
]
Group = Annotated[str | None, typer.Option(metavar="GROUP", help="Of this group, which need not exist yet.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Properties.")]
Values = Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="Properties and their new values.")]
ALL_BROKERS = "all"


@app.command()
def describe(
    *,
    topic: Topic = None,
    broker: Broker = None,
    broker_loggers: BrokerLoggers = None,
    group: Group = None,
    everything: Annotated[bool, typer.Option("--all", help="Show defaults too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Show each property's value and where it comes from."""
    with _opened(bootstrap, client_config, topic=topic, broker=broker, broker_logger=broker_loggers, group=group) as (
        configs,
        kind,
        name,
    ):
        found = [one for one in configs.describe(kind, name) if everything or one.source != "default"]
    if as_json:
        print_json([_row(one) for one in found])
    else:
        print_table(("property", "value", "from", "live"), (tuple(_row(one).values()) for one in found))


@app.command("set")
def set_(
    values: Values,
    *,
    topic: Topic = None,
    broker: Broker = None,
    broker_loggers: BrokerLoggers = None,
    group: Group = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Set properties; others stay as they are."""
    from millrace.config import parse_assignments

    _change(
        bootstrap,
        client_config,
        parse_assignments(values),
        [],
        as_json=as_json,
        topic=topic,
        broker=broker,
        broker_logger=broker_loggers,
        group=group,
    )


@app.command()
def unset(
    names: Names,
    *,
    topic: Topic = None,
    broker: Broker = None,
    broker_loggers: BrokerLoggers = None,
    group: Group = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Remove properties, so that what holds without them applies again."""
    _change(
        bootstrap,
        client_config,
        {},
        names,
        as_json=as_json,
        topic=topic,
        broker=broker,
        broker_logger=broker_loggers,
        group=group,
    )


def _change(
    bootstrap: str,
    client_config: str | None,
    values: Mapping[str, str],
    names: list[str],
    *,
    as_json: bool,
    **subject: str | None,
) -> None:
    with _opened(bootstrap, client_config, **subject) as (configs, kind, name):
        _check_known(configs.describe(kind, name), names)
        configs.change(kind, name, values, names)
        changed = [one for one in configs.describe(kind, name) if one.name in (*values, *names)]
    if as_json:
        print_json([_row(one) for one in changed])
    else:
        print_table(("property", "value", "from", "live"), (tuple(_row(one).values()) for one in changed))


def _check_known(described: list[Property], names: list[str]) -> None:
    """Raises InvalidConfigError for a name that no property has: unsetting a misspelled name would change nothing."""
    known = {one.name for one in described}
    if unknown := [one for one in names if one not in known]:
        raise InvalidConfigError(f"unknown property {', '.join(unknown)}; nothing was unset")


@contextmanager
def _opened(
    bootstrap: str, client_config: str | None, **subject: str | None
) -> Iterator[tuple[Configs, ResourceKind, str]]:
    from millrace.client import Configs, ResourceKind

    named = [(kind, name) for kind, name in subject.items() if name is not None]
    if len(named) != 1:
        raise typer.BadParameter(
            "one of the four is needed", param_hint="--topic / --broker / --broker-loggers / --group"
        )
    [(kind, name)] = named
    with open_cluster(bootstrap, client_config) as cluster:
        is_of_all = kind == "broker" and name == ALL_BROKERS
        yield Configs(cluster), ResourceKind[kind.upper()], "" if is_of_all else name


def _row(one: Property) -> dict[str, object]:
    return {"property": one.name, "value": one.value, "from": one.source, "live": not one.is_read_only}
