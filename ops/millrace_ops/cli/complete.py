"""Completes names of topics, groups, users and clients, and ids of brokers and tokens, while a user types.

The shell waits for the answer and can't show an error. If the cluster refuses, or doesn't answer within a second,
nothing is completed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.errors import MillraceError
from millrace_ops.cli.options import ClusterAccess

if TYPE_CHECKING:
    from millrace.client import Cluster

WAIT_S = 1.0


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the topics whose names begin with `incomplete`."""
    from millrace.client import Admin

    return _names(context, incomplete, lambda cluster: Admin(cluster).topics())


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the groups whose names begin with `incomplete`."""
    from millrace.client import Groups

    return _names(context, incomplete, lambda cluster: [one.group_id for one in Groups(cluster).list()])


def complete_user(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the users with credentials or quotas whose names begin with `incomplete`."""
    from millrace.client import Users

    return _names(context, incomplete, lambda cluster: {*Users(cluster).describe(), *_with_quotas(cluster, "user")})


def complete_broker(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the ids of live brokers that begin with `incomplete`."""
    return _names(context, incomplete, lambda cluster: map(str, cluster.metadata([]).brokers))


def complete_client(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the client ids with quotas that begin with `incomplete`."""
    return _names(context, incomplete, lambda cluster: _with_quotas(cluster, "client-id"))


def _with_quotas(cluster: Cluster, kind: str) -> set[str]:
    from millrace.client import Quotas

    return {name for one in Quotas(cluster).describe() if (name := one.entity.get(kind)) is not None}


def complete_token(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the ids of delegation tokens that begin with `incomplete`."""
    from millrace.client.access import DelegationTokens

    return _names(context, incomplete, lambda cluster: [one.token_id for one in DelegationTokens(cluster).list()])


def _names(context: typer.Context, incomplete: str, ask: Callable[[Cluster], Iterable[str]]) -> list[str]:
    found: list[str] = []
    thread = threading.Thread(target=_ask, args=(context.params, ask, found), daemon=True)
    thread.start()
    thread.join(WAIT_S)  # the process ends without the thread, where that still waits
    typed = context.params.get("names") or ()
    return sorted(name for name in found if name.startswith(incomplete) and name not in typed)


def _ask(params: Mapping[str, Any], ask: Callable[[Cluster], Iterable[str]], found: list[str]) -> None:
    access = ClusterAccess(params["bootstrap"], params.get("client_config"))
    with suppress(MillraceError, OSError), access.open(timeout_s=WAIT_S) as cluster:
        found += ask(cluster)


# Arguments of several commands.
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=complete_topic)]
TopicNames = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="The topics' names.", autocompletion=complete_topic)
]
BrokerId = Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.", autocompletion=complete_broker)]
