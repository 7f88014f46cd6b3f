"""`millrace configs`: describes, sets and unsets properties of topics, brokers and groups, and levels of loggers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import parse_assignments
from millrace.errors import InvalidConfigError
from millrace.suggestions import did_you_mean
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import ClusterAccess, Json, complete_broker, complete_group, complete_topic
from millrace_ops.cli.output import print_rows
from millrace_ops.cli.suggested import suggesting_properties

if TYPE_CHECKING:
    from millrace.client import Configs, Property, ResourceKind

app = Commands(help="Describe and change the configuration of topics, brokers and groups, and what brokers log.")
Topic = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="The configuration of this topic.", autocompletion=complete_topic),
]
Broker = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help="Of this broker, or `all`: the live one of all brokers.", autocompletion=complete_broker
    ),
]
BrokerLoggers = Annotated[
    str | None, typer.Option(metavar="ID", help="The levels of this broker's loggers, until it stops.")
]
Group = Annotated[
    str | None,
    typer.Option(metavar="GROUP", help="Of this group, which need not exist yet.", autocompletion=complete_group),
]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Properties.")]
Values = Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="Properties and their new values.")]
ALL_BROKERS = "all"


@dataclass(frozen=True, slots=True)
class Subject:
    """The topic, broker or other thing whose properties are meant; exactly one is to be named."""

    topic: Topic = None
    broker: Broker = None
    broker_loggers: BrokerLoggers = None
    group: Group = None


@app.command()
def describe(
    *,
    subject: Subject,
    everything: Annotated[bool, typer.Option("--all", help="Show defaults too.")] = False,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Show each property's value and where it comes from."""
    with _opened(access, subject) as (configs, kind, name):
        found = [one for one in configs.describe(kind, name) if everything or one.source != "default"]
    _print(found, as_json=as_json)


@app.command("set")
def set_(values: Values, *, subject: Subject, access: ClusterAccess, as_json: Json = False) -> None:
    """Set properties; others stay as they are."""
    _change(access, subject, parse_assignments(values), [], as_json=as_json)


@app.command()
def unset(names: Names, *, subject: Subject, access: ClusterAccess, as_json: Json = False) -> None:
    """Remove properties, so that what holds without them applies again."""
    _change(access, subject, {}, names, as_json=as_json)


def _change(
    access: ClusterAccess, subject: Subject, values: Mapping[str, str], names: list[str], *, as_json: bool
) -> None:
    with _opened(access, subject) as (configs, kind, name):
        known = {one.name for one in configs.describe(kind, name)}
        if unknown := [one for one in names if one not in known]:  # to unset a misspelled name would change nothing
            hints = "".join(did_you_mean(one, known) for one in unknown)
            raise InvalidConfigError(f"unknown property {', '.join(unknown)}; nothing was unset{hints}")
        with suggesting_properties(values, lambda: known):
            configs.change(kind, name, values, names)
        changed = [one for one in configs.describe(kind, name) if one.name in (*values, *names)]
    _print(changed, as_json=as_json)


@contextmanager
def _opened(access: ClusterAccess, subject: Subject) -> Iterator[tuple[Configs, ResourceKind, str]]:
    from millrace.client import Configs, ResourceKind

    of_kinds = {
        ResourceKind.TOPIC: subject.topic,
        ResourceKind.BROKER: subject.broker,
        ResourceKind.BROKER_LOGGER: subject.broker_loggers,
        ResourceKind.GROUP: subject.group,
    }
    named = [(kind, name) for kind, name in of_kinds.items() if name is not None]
    if len(named) != 1:
        raise typer.BadParameter(
            "one of the four is needed", param_hint="--topic / --broker / --broker-loggers / --group"
        )
    [(kind, name)] = named
    with access.open() as cluster:
        is_of_all = kind is ResourceKind.BROKER and name == ALL_BROKERS
        yield Configs(cluster), kind, "" if is_of_all else name


def _print(properties: Iterable[Property], *, as_json: bool) -> None:
    rows = [
        {"property": one.name, "value": one.value, "from": one.source, "live": not one.is_read_only}
        for one in properties
    ]
    print_rows(rows, as_json=as_json, columns=("property", "value", "from", "live"))
