"""What the options of `millrace acls` mean: the resources, the entries to add, and the filters to look by.

    --producer    Write, Describe and Create on topics; Write and Describe on transactional ids
    --consumer    Read and Describe on topics; Read on groups

as Kafka's own tool has it. The functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from millrace.errors import InvalidConfigError
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

PRODUCER = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
CONSUMER = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


class Who(NamedTuple):
    """The principals that are allowed and denied, and the hosts they come from; none stands for every host."""

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
    """Returns the names by type; a type without a name is left out."""
    named = {
        ResourceType.TOPIC: topics,
        ResourceType.GROUP: groups,
        ResourceType.TRANSACTIONAL_ID: transactional_ids,
        ResourceType.USER: users,
        ResourceType.CLUSTER: (CLUSTER_NAME,) if cluster else (),
    }
    return {kind: names for kind, names in named.items() if names}


def operations(
    kinds: Iterable[ResourceType], names: Sequence[str], *, producer: bool, consumer: bool
) -> dict[ResourceType, list[AclOperation]]:
    """Returns the operations on each type of resource. Raises InvalidConfigError where a type gets none."""
    found: dict[ResourceType, list[AclOperation]] = {}
    for kind in kinds:
        roles = [role for role, is_meant in ((PRODUCER, producer), (CONSUMER, consumer)) if is_meant]
        meant = [_operation(name) for name in names] + [one for role in roles for one in role.get(kind, ())]
        if not meant:
            raise InvalidConfigError(f"no operation on {kind.pascal}: give --operation, or another role")
        found[kind] = list(dict.fromkeys(meant))
    return found


def bindings(
    named: Resources, wanted: Mapping[ResourceType, Sequence[AclOperation]], who: Who, *, prefixed: bool
) -> list[AclBinding]:
    """Returns the entries to add, sorted."""
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
    """Returns the filters for all combinations of what is given; raises InvalidConfigError for an unknown word."""
    places: list[tuple[ResourceType, str | None]] = [(kind, name) for kind, names in named.items() for name in names]
    return [
        AclFilter(kind, name, _pattern_type(pattern), principal, host, operation)
        for (kind, name), principal, host, operation in product(
            places or [(ResourceType.ANY, None)],
            principals or (None,),
            hosts or (None,),
            [_operation(one) for one in operations] or [AclOperation.ANY],
        )
    ]


def _operation(name: str) -> AclOperation:
    try:
        return AclOperation.parse(name)
    except ValueError as error:
        raise InvalidConfigError(f"operation {error}") from None


def _pattern_type(name: str) -> PatternType:
    try:
        return PatternType.parse(name)
    except ValueError as error:
        raise InvalidConfigError(f"pattern {error}") from None
