"""`millrace users`: creates, lists and deletes users who log in by SCRAM, and changes their passwords.

A password comes from a prompt, from standard input or from a file, and never from an argument, which everybody on the
machine could read in the list of processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import DuplicateResourceError, ResourceNotFoundError, SetupError, UnacceptableCredentialError
from millrace.security.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS
from millrace.suggestions import did_you_mean
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import FS, ClusterAccess, Json, ZooKeeperConfig, complete_user, zookeeper_security
from millrace_ops.cli.output import print_rows

if TYPE_CHECKING:
    from millrace.client import Users
    from millrace_ops.users.stored_users import StoredUsers


class Mechanism(StrEnum):
    """The mechanisms by which a stored user can log in."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


app = Commands(help="Create, list and delete users, and change their passwords.")
NewUser = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.", autocompletion=complete_user)]
MECHANISM_NAMES = "|".join(Mechanism)
Mechanisms = Annotated[
    list[Mechanism], typer.Option("--mechanism", metavar=MECHANISM_NAMES, help="How the user logs in; may be repeated.")
]
Iterations = Annotated[
    int, typer.Option(min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="How much a guess at the password costs.")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The password is the first line of this file, instead of a prompt or stdin."),
]
Data = Annotated[
    Path | None, typer.Option(metavar="DIR", help="In the folder of a standalone broker that does not run.")
]
ZooKeeper = Annotated[
    str | None, typer.Option(metavar="HOST:PORT[,...][/chroot]", help="In ZooKeeper, without asking a broker.")
]
DEFAULT_MECHANISMS = [Mechanism.SCRAM_SHA_256]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options for where users are stored, if no broker is asked: a broker's folder or ZooKeeper."""

    data: Data = None
    zookeeper: ZooKeeper = None
    zookeeper_config: ZooKeeperConfig = None


@app.command()
def create(
    user: NewUser,
    *,
    mechanism: Mechanisms = DEFAULT_MECHANISMS,
    iterations: Iterations = MIN_ITERATIONS,
    password_file: PasswordFile = None,
    access: ClusterAccess,
    store: StoreOptions,
) -> None:
    """Create a user."""
    if not user:
        raise typer.BadParameter("the name of a user can't be empty", param_hint="USER")
    with _opened(access, store) as users:
        known = users.describe().get(user, {})
        if there := [one for one in mechanism if one in known]:
            raise DuplicateResourceError(
                f"user {user} can log in by {there[0]} already; `millrace users password` changes the password"
            )
        users.set_password(user, mechanism, _password(user, password_file), iterations)
    print(f"created {user} for {', '.join(mechanism)}")


@app.command("list")
def list_(
    *,
    access: ClusterAccess,
    store: StoreOptions,
    as_json: Json = False,
) -> None:
    """List users and how they log in."""
    with _opened(access, store) as users:
        found = [
            {"user": user, "mechanism": mechanism, "iterations": iterations}
            for user, credentials in users.describe().items()
            for mechanism, iterations in credentials.items()
        ]
    print_rows(found, as_json=as_json, columns=("user", "mechanism", "iterations"), empty="there is no user")


@app.command()
def delete(
    user: User,
    *,
    mechanism: Annotated[
        list[Mechanism] | None, typer.Option(metavar=MECHANISM_NAMES, help="Only for this one; may be repeated.")
    ] = None,
    access: ClusterAccess,
    store: StoreOptions,
) -> None:
    """Delete a user, who can't log in from then on."""
    with _opened(access, store) as users:
        deleted = mechanism or _known(users, user)
        users.delete(user, deleted)
    print(f"deleted {user} for {', '.join(deleted)}")


@app.command()
def password(
    user: User,
    *,
    iterations: Iterations = MIN_ITERATIONS,
    password_file: PasswordFile = None,
    access: ClusterAccess,
    store: StoreOptions,
) -> None:
    """Change the password of a user, for all mechanisms by which the user logs in."""
    with _opened(access, store) as users:
        mechanisms = _known(users, user)
        users.set_password(user, mechanisms, _password(user, password_file), iterations)
    print(f"changed the password of {user} for {', '.join(mechanisms)}")


@contextmanager
def _opened(access: ClusterAccess, store: StoreOptions) -> Iterator[Users | StoredUsers]:
    if store.data is not None and store.zookeeper is not None:
        raise typer.BadParameter("only one of them can be given", param_hint="--data / --zookeeper")
    if store.data is None and store.zookeeper is None:
        from millrace.client import Users

        with access.open() as cluster:
            yield Users(cluster)
        return
    from millrace_ops.users.stored_users import in_folder, in_zookeeper

    with (
        in_folder(str(store.data), FS)
        if store.zookeeper is None
        else in_zookeeper(store.zookeeper, zookeeper_security(store.zookeeper_config)) as users
    ):
        yield users


def _known(users: Users | StoredUsers, user: str) -> Sequence[str]:
    credentials = users.describe()
    if not credentials.get(user):
        raise ResourceNotFoundError(f"user {user} does not exist{did_you_mean(user, credentials)}")
    return list(credentials[user])


def _password(user: str, file: Path | None) -> str:
    """Returns the password from a file or standard input; raises UnacceptableCredentialError for an empty one."""
    if file is not None:
        text = _first_line(file)
    elif sys.stdin is not None and sys.stdin.isatty():
        text = _asked(user)
    else:
        text = "" if sys.stdin is None else sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise UnacceptableCredentialError("no password is given; type it, or give it by standard input or a file")
    return text


def _asked(user: str) -> str:
    from getpass import getpass

    text = getpass(f"Password of {user}: ")
    if getpass("Once more: ") != text:
        raise UnacceptableCredentialError("the two passwords differ")
    return text


def _first_line(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as lines:
            return lines.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"{file}: no password can be read: {error}") from error
