"""All access control lists of a cluster, arranged so that a decision looks only at what can decide it.

Which entries count for the name `orders` (all three together, in no order):

    literal  orders        the resource itself
    literal  *             every resource of the type
    prefixed o, ord, …     looked up by each length that a prefix of the type has

An entry is looked for by its value among those of a resource: for a principal and `User:*`, for a host and `*`, for an
operation and ALL. So the number of entries of a resource does not matter.

An index is made as a whole after each change and is never changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product

from millrace.security.acls import (
    EVERY_HOST,
    EVERYONE,
    WILDCARD,
    Acl,
    AclOperation,
    Acls,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

NO_ENTRIES: frozenset[Acl] = frozenset()


class AclIndex:
    """Finds the entries that decide about a resource, and the resources on which there is an entry."""

    def __init__(self, acls: Acls) -> None:
        self._acls = acls
        lengths: defaultdict[ResourceType, set[int]] = defaultdict(set)
        names: defaultdict[tuple[ResourceType, PatternType], defaultdict[Acl, set[str]]]
        names = defaultdict(lambda: defaultdict(set))
        for (resource_type, name, pattern_type), entries in acls.items():
            if pattern_type is PatternType.PREFIXED:
                lengths[resource_type].add(len(name))
            for acl in entries:
                names[resource_type, pattern_type][acl].add(name)
        self._prefix_lengths: Mapping[ResourceType, list[int]] = {kind: sorted(each) for kind, each in lengths.items()}
        self._names: Mapping[tuple[ResourceType, PatternType], Mapping[Acl, set[str]]] = dict(names)

    def entries_on(self, resource_type: ResourceType, name: str) -> list[frozenset[Acl]]:
        """Returns the entries of each resource that a literal name belongs to; an empty list where there are none."""
        patterns = [ResourcePattern(resource_type, name), ResourcePattern(resource_type, WILDCARD)]
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            patterns.append(ResourcePattern(resource_type, name[:length], PatternType.PREFIXED))
        return [entries for one in patterns if (entries := self._acls.get(one, NO_ENTRIES))]

    def names_with(
        self, resource_type: ResourceType, pattern_type: PatternType, wanted: Iterable[Acl]
    ) -> frozenset[str]:
        """Returns the names of the resources that have one of the entries."""
        by_acl = self._names.get((resource_type, pattern_type), {})
        return frozenset(name for acl in wanted for name in by_acl.get(acl, ()))


def matching(
    principal: str, host: str, operations: Collection[AclOperation], permission: PermissionType
) -> Iterator[Acl]:
    """Yields the entries that are about a principal, its host and one of the operations."""
    for named in product((principal, EVERYONE), (host, EVERY_HOST), (*operations, AclOperation.ALL)):
        yield Acl(*named, permission)
