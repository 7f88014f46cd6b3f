"""`millrace tokens`: makes, renews, ends and lists delegation tokens.

A token is named by its id. Its secret is printed when it is made, and is no argument of any command, as lists of
processes show arguments.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import ClusterAccess, Json, complete_token
from millrace_ops.cli.output import for_each, iso_time, print_json, print_rows, print_table

if TYPE_CHECKING:
    from millrace.client.access import TokenInformation

app = Commands(help="Make, renew, end and list delegation tokens.")
Names = Annotated[list[str], typer.Argument(metavar="ID", help="The tokens' ids.", autocompletion=complete_token)]
Period = Annotated[
    int | None, typer.Option("--period-ms", metavar="MS", min=0, help="For how long from now; the broker's own time.")
]


@app.command()
def create(
    *,
    owner: Annotated[str | None, typer.Option(metavar="User:NAME", help="Whom it stands for; yourself.")] = None,
    renewers: Annotated[
        list[str] | None, typer.Option("--renewer", metavar="User:NAME", help="Who may renew it; repeatable.")
    ] = None,
    max_lifetime_ms: Annotated[
        int | None, typer.Option(metavar="MS", min=1, help="How long it lives at most; the broker's limit.")
    ] = None,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Make a token, and print it with its secret, which is the password of a login by SCRAM."""
    from millrace.client.access import BY_BROKER, DelegationTokens, parse_principal

    with access.open() as cluster:
        made = DelegationTokens(cluster).create(
            owner=None if owner is None else parse_principal(owner),
            renewers=[parse_principal(one) for one in renewers or ()],
            max_lifetime_ms=max_lifetime_ms or BY_BROKER,
        )
    row = {**_row(made), "hmac": b64encode(made.hmac).decode()}
    print_json(row) if as_json else print_table(("", ""), row.items())


@app.command()
def renew(
    names: Names,
    *,
    period_ms: Period = None,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Let tokens live on, for delegation.token.expiry.time.ms of the broker unless a period is given."""
    _change(names, access, period_ms, as_json=as_json, renews=True)


@app.command()
def expire(
    names: Names,
    *,
    period_ms: Period = None,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """End tokens, at once unless a period is given."""
    _change(names, access, period_ms, as_json=as_json, renews=False)


@app.command("list")
def list_tokens(
    *,
    owners: Annotated[
        list[str] | None, typer.Option("--owner", metavar="User:NAME", help="Only those of this user; repeatable.")
    ] = None,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """List the tokens that you may see, without their secrets."""
    from millrace.client.access import DelegationTokens, parse_principal

    with access.open() as cluster:
        found = DelegationTokens(cluster).list([parse_principal(one) for one in owners] if owners else None)
    rows = [_row(one) for one in found]
    print_rows(rows, as_json=as_json, nothing="there is no delegation token that you may see")


def _change(names: list[str], access: ClusterAccess, period_ms: int | None, *, as_json: bool, renews: bool) -> None:
    from millrace.client.access import BY_BROKER, DelegationTokens

    def change_one(name: str) -> None:
        period = BY_BROKER if period_ms is None else period_ms
        expiry = iso_time(tokens.renew(name, period) if renews else tokens.expire(name, period))
        print_json({"token": name, "expires": expiry}) if as_json else print(f"{name} expires {expiry}")

    with access.open() as cluster:
        tokens = DelegationTokens(cluster)
        for_each(names, change_one)


def _row(one: TokenInformation) -> dict[str, str]:
    return {
        "token": one.token_id,
        "owner": str(one.owner),
        "requester": str(one.requester),
        "renewers": " ".join(map(str, one.renewers)) or "-",
        "issued": iso_time(one.issue_ms),
        "expires": iso_time(one.expiry_ms),
        "ends": iso_time(one.max_ms),
    }
