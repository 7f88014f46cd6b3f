"""`millrace quotas`: lists, sets and unsets what users, clients and addresses may do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import parse_assignments
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import ClusterAccess, Json, complete_client, complete_user
from millrace_ops.cli.output import print_json, print_table

if TYPE_CHECKING:
    from millrace.client import EntityQuotas

app = Commands(help="List and set quotas of users, clients and addresses.")
QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
DEFAULT = "<default>"
OPTIONS = "--user / --client / --ip"


def complete_quota(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the quotas whose names begin with `incomplete`."""
    typed = context.params.get("names") or []
    return [one for one in QUOTAS if one.startswith(incomplete) and one not in typed]


User = Annotated[
    str | None, typer.Option(metavar="USER", help="The quotas of this user.", autocompletion=complete_user)
]
Client = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Of this client id; with --user, of this client of the user.",
                 autocompletion=complete_client),
]  # fmt: skip
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Of this address.")]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="Of each user that has none.")]
DefaultClient = Annotated[bool, typer.Option("--default-client", help="Of each client id that has none.")]
DefaultIp = Annotated[bool, typer.Option("--default-ip", help="Of each address that has none.")]
Names = Annotated[list[str], typer.Argument(metavar="QUOTA", help="Quotas.", autocompletion=complete_quota)]
Values = Annotated[
    list[str], typer.Argument(metavar="QUOTA=NUMBER", help=f"Quotas and their new values: {', '.join(QUOTAS)}.")
]


@dataclass(frozen=True, slots=True)
class Entity:
    """The options that name whose quotas are meant: a user or client by its name, or the default of its kind."""

    user: User = None
    client: Client = None
    ip: Ip = None
    default_user: DefaultUser = False
    default_client: DefaultClient = False
    default_ip: DefaultIp = False

    def named(self) -> dict[str, str | None]:
        """Returns the named entities by kind, None for the default; raises typer.BadParameter for no entity."""
        from millrace.client.access import ADDRESS, CLIENT_ID, USER

        given = {
            USER: (self.user, self.default_user),
            CLIENT_ID: (self.client, self.default_client),
            ADDRESS: (self.ip, self.default_ip),
        }
        if any(name is not None and is_default for name, is_default in given.values()):
            raise typer.BadParameter("either a name or the default is meant", param_hint=OPTIONS)
        entity = {kind: name for kind, (name, is_default) in given.items() if name is not None or is_default}
        if not entity or (ADDRESS in entity and len(entity) > 1):
            raise typer.BadParameter("a user, a client, both, or an address is needed", param_hint=OPTIONS)
        return entity


@app.command("list")
def list_(*, access: ClusterAccess, as_json: Json = False) -> None:
    """List all quotas."""
    from millrace.client import Quotas

    with access.open() as cluster:
        found = Quotas(cluster).describe()
    _print(found, as_json=as_json)


@app.command("set")
def set_(
    values: Values,
    *,
    entity: Entity,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Set quotas; others stay as they are."""
    named = entity.named()
    numbers = {name: _number(name, text) for name, text in parse_assignments(values).items()}
    _alter(access, named, numbers, [], as_json=as_json)


@app.command()
def unset(
    names: Names,
    *,
    entity: Entity,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Remove quotas, so that what holds without them applies again."""
    named = entity.named()
    if unknown := [one for one in names if one not in QUOTAS]:
        raise typer.BadParameter(f"{', '.join(unknown)} is no quota; there are {', '.join(QUOTAS)}", param_hint="QUOTA")
    _alter(access, named, {}, names, as_json=as_json)


def _alter(
    access: ClusterAccess,
    entity: Mapping[str, str | None],
    values: Mapping[str, float],
    names: Iterable[str],
    *,
    as_json: bool,
) -> None:
    from millrace.client import Quotas

    with access.open() as cluster:
        quotas = Quotas(cluster)
        quotas.alter(entity, values, names)
        now = [one for one in quotas.describe() if one.entity == entity]
    _print(now, as_json=as_json)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{name}={text}: a quota is a number", param_hint="QUOTA=NUMBER") from None


def _print(found: Iterable[EntityQuotas], *, as_json: bool) -> None:
    rows = [
        {"user": "", "client": "", "ip": "", **_names(one.entity), "quota": name, "value": value}
        for one in found
        for name, value in one.quotas.items()
    ]
    if as_json:
        print_json([{key: value for key, value in row.items() if value != ""} for row in rows])
    else:
        print_table(
            ("user", "client", "ip", "quota", "value"),
            ((*list(row.values())[:4], f"{row['value']:.10g}") for row in rows),
            empty="no quota is set",
        )


def _names(entity: Mapping[str, str | None]) -> dict[str, str]:
    from millrace.client.access import CLIENT_ID

    return {"client" if kind == CLIENT_ID else kind: DEFAULT if name is None else name for kind, name in entity.items()}
