"""`millrace acls`: lists, adds and removes access control lists.

    --producer    Write, Describe and Create on topics; Write and Describe on transactional ids
    --consumer    Read and Describe on topics; Read on groups

as Kafka's own tool has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from millrace.errors import MalformedValueError
from millrace.security.acls import (
    CLUSTER_NAME,
    EVERY_HOST,
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import ClusterAccess, DryRun, Json, complete_group, complete_topic
from millrace_ops.cli.output import confirm, print_rows

if TYPE_CHECKING:
    from millrace.client import Cluster

PRODUCER = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
CONSUMER = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


class Who(NamedTuple):
    """The principals that entries allow and deny, and the hosts that they come from; no host stands for every host."""

    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    hosts: Sequence[str] = ()


Resources = Mapping[ResourceType, Sequence[str]]


def resources(
    topics: Sequence[str],
    groups: Sequence[str],
    transactional_ids: Sequence[str],
    users: Sequence[str],
    *,
    cluster: bool,
) -> Resources:
    """Returns the named resources by their type; a type without a name is left out."""
    named = {
        ResourceType.TOPIC: topics,
        ResourceType.GROUP: groups,
        ResourceType.TRANSACTIONAL_ID: transactional_ids,
        ResourceType.USER: users,
        ResourceType.CLUSTER: (CLUSTER_NAME,) if cluster else (),
    }
    return {kind: names for kind, names in named.items() if names}


def operations_on(
    kinds: Iterable[ResourceType], names: Sequence[str], *, producer: bool, consumer: bool
) -> dict[ResourceType, list[AclOperation]]:
    """Returns the operations to enter for each type of resource; raises MalformedValueError where a type gets none."""
    found: dict[ResourceType, list[AclOperation]] = {}
    for kind in kinds:
        roles = [role for role, is_meant in ((PRODUCER, producer), (CONSUMER, consumer)) if is_meant]
        meant = [_parsed("operation", AclOperation.parse, name) for name in names] + [
            one for role in roles for one in role.get(kind, ())
        ]
        if not meant:
            raise MalformedValueError(f"no operation on {kind.pascal}: give --operation, or another role")
        found[kind] = list(dict.fromkeys(meant))
    return found


def new_bindings(
    named: Resources, wanted: Mapping[ResourceType, Sequence[AclOperation]], who: Who, *, prefixed: bool
) -> list[AclBinding]:
    """Returns, sorted, an ACL entry for each named resource, wanted operation on its type, principal and host."""
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    parties = [(PermissionType.ALLOW, one) for one in who.allowed] + [(PermissionType.DENY, one) for one in who.denied]
    return sorted(
        AclBinding(
            ResourcePattern(kind, name, PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern_type),
            Acl(principal, host, operation, permission),
        )
        for kind, names in named.items()
        for name, operation in product(names, wanted[kind])
        for (permission, principal), host in product(parties, who.hosts or (EVERY_HOST,))
    )


def filters(
    named: Resources, pattern: str, principals: Sequence[str], hosts: Sequence[str], operations: Sequence[str]
) -> list[AclFilter]:
    """Returns an ACL filter for each combination of the arguments; raises MalformedValueError for an unknown name."""
    places: list[tuple[ResourceType, str | None]] = [(kind, name) for kind, names in named.items() for name in names]
    return [
        AclFilter(kind, name, _parsed("pattern", PatternType.parse, pattern), principal, host, operation)
        for (kind, name), principal, host, operation in product(
            places or [(ResourceType.ANY, None)],
            principals or (None,),
            hosts or (None,),
            [_parsed("operation", AclOperation.parse, one) for one in operations] or [AclOperation.ANY],
        )
    ]


Word = TypeVar("Word")


def _parsed(what: str, parse: Callable[[str], Word], name: str) -> Word:
    try:
        return parse(name)
    except ValueError as error:
        raise MalformedValueError(f"{what} {error}") from None


app = Commands(help="List, add and remove access control lists: who may do what.")
COLUMNS = ("type", "name", "pattern", "principal", "host", "operation", "permission")

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="A topic, * for all; repeatable.", autocompletion=complete_topic),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="A group, * for all; repeatable.", autocompletion=complete_group),
]
Ids = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id; repeatable.")
]
Users = Annotated[
    list[str] | None,
    typer.Option("--user", metavar="PRINCIPAL", help="A user, for whom others may have tokens; repeatable."),
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", metavar="ADDRESS", help="An address of clients; repeatable.")
]
Operations = Annotated[
    list[str] | None, typer.Option("--operation", metavar="NAME", help="Read, Write, All, …; repeatable.")
]
Principals = Annotated[
    list[str] | None, typer.Option("--principal", metavar="PRINCIPAL", help="User:NAME; repeatable.")
]
Pattern = Annotated[
    str, typer.Option(metavar="NAME", help="literal, prefixed, any, or match: all that decides about a name.")
]


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """The options that name the resources of ACL entries."""

    topics: Topics = None
    groups: Groups = None
    transactional_ids: Ids = None
    users: Users = None
    cluster: OfCluster = False

    def named(self) -> Resources:
        """Returns the named resources by their type."""
        names = (self.topics or (), self.groups or (), self.transactional_ids or (), self.users or ())
        return resources(*names, cluster=self.cluster)


@dataclass(frozen=True, slots=True)
class EntryOptions:
    """The options that select ACL entries on the named resources."""

    principals: Principals = None
    hosts: Hosts = None
    operations: Operations = None
    pattern: Pattern = "any"


@app.command("list")
def list_(
    *,
    resources: ResourceOptions,
    entries: EntryOptions,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """List ACL entries: all, or those on the named resources."""
    wanted = _filters(resources, entries)
    with access.open() as connected:
        _show(_found(connected, wanted), as_json=as_json)


@app.command()
def add(
    *,
    allowed: Annotated[
        list[str] | None, typer.Option("--allow", metavar="PRINCIPAL", help="User:NAME is allowed; repeatable.")
    ] = None,
    denied: Annotated[
        list[str] | None, typer.Option("--deny", metavar="PRINCIPAL", help="User:NAME is denied; repeatable.")
    ] = None,
    resources: ResourceOptions,
    prefixed: Annotated[bool, typer.Option("--prefixed", help="All resources whose names begin so.")] = False,
    hosts: Hosts = None,
    operations: Operations = None,
    producer: Annotated[bool, typer.Option("--producer", help="What a producer needs.")] = False,
    consumer: Annotated[bool, typer.Option("--consumer", help="What a consumer needs, of its group too.")] = False,
    dry_run: DryRun = False,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Add ACL entries, one for each combination of resource, principal, host and operation, and show them."""
    from millrace.client.access import create_acls

    named = resources.named()
    if not named:
        raise typer.BadParameter("a resource is needed", param_hint="--topic / --group / --cluster / …")
    if not (allowed or denied):
        raise typer.BadParameter("one of the two is needed", param_hint="--allow / --deny")
    wanted = operations_on(named, operations or (), producer=producer, consumer=consumer)
    who = Who(allowed or (), denied or (), hosts or ())
    bindings = new_bindings(named, wanted, who, prefixed=prefixed)
    if not dry_run:
        with access.open() as connected:
            create_acls(connected, bindings)
    _show(bindings, as_json=as_json)


@app.command()
def remove(
    *,
    resources: ResourceOptions,
    entries: EntryOptions,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Remove ACL entries, after showing them."""
    from millrace.client.access import delete_acls

    wanted = _filters(resources, entries)
    with access.open() as connected:
        found = _found(connected, wanted)
        _show(found, as_json=as_json)
        question = f"Remove {len(found)} entries?"
        if found and confirm(question, is_confirmed=yes):
            delete_acls(connected, wanted)


def _filters(resources: ResourceOptions, entries: EntryOptions) -> list[AclFilter]:
    given = (entries.principals or (), entries.hosts or (), entries.operations or ())
    return filters(resources.named(), entries.pattern, *given)


def _found(cluster: Cluster, wanted: Sequence[AclFilter]) -> list[AclBinding]:
    from millrace.client.access import find_acls

    return sorted({binding for one in wanted for binding in find_acls(cluster, one)})


def _show(bindings: Sequence[AclBinding], *, as_json: bool) -> None:
    print_rows([_row(one) for one in bindings], as_json=as_json, columns=COLUMNS, empty="there is no such ACL entry")


def _row(binding: AclBinding) -> dict[str, object]:
    (kind, name, pattern), (principal, host, operation, permission) = binding
    texts = (kind.pascal, name, pattern.pascal, principal, host, operation.pascal, permission.pascal)
    return dict(zip(COLUMNS, texts, strict=True))
