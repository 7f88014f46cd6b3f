"""Access control lists in Apache Kafka's terms: what an entry says, on which resource, and what a filter finds.

    resource     a type, a name, and how the name is meant: literal, or the beginning of names; `*` is every name
    entry (ACL)  a principal `User:alice`, or `User:*` for everyone; the host it comes from, or `*` for every one;
                 an operation, or ALL; allow or deny
    binding      an entry on a resource

A filter finds the bindings that are equal to it in every field that it sets. The pattern type ANY finds literal and
prefixed resources, and MATCH finds every resource that covers a literal name: the name itself, `*`, and its prefixes.
The numbers are those of the protocol. ZooKeeper and commands have the names without underscores, in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple, Self

WILDCARD = "*"
EVERYONE = "User:*"
EVERY_HOST = "*"
CLUSTER_NAME = "kafka-cluster"


class _Named(IntEnum):
    """A number of the protocol with a name in two forms: `TRANSACTIONAL_ID`, and in ZooKeeper `TransactionalId`."""

    __hash__ = int.__hash__  # decisions look entries up: an enumeration's own hash takes many times as long

    @property
    def pascal(self) -> str:
        """The name in the form of ZooKeeper's nodes, such as `TransactionalId`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the member with this name, in either form and in any case; raises ValueError where there is none."""
        wanted = text.strip().replace("_", "").lower()
        for one in cls:
            if one.name.replace("_", "").lower() == wanted:
                return one
        raise ValueError(f"{text!r}: expected one of {', '.join(one.pascal for one in cls if one.value > 1)}")


class ResourceType(_Named):
    """The types of resources that access control entries protect; only filters may have ANY."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """Whether an access control entry's name is a whole name or a prefix; ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Named):
    """The operation that an access control entry allows or denies; ALL means all of them. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class PermissionType(_Named):
    """Whether an access control entry allows or denies its operation; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resource with this name or, with PREFIXED, all resources whose names begin with `name`."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class Acl(NamedTuple):
    """An access control entry: whether a principal, from a host, may do an operation."""

    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType


class AclBinding(NamedTuple):
    """An access control entry, and the resources to which it applies."""

    pattern: ResourcePattern
    acl: Acl


Acls = Mapping[ResourcePattern, frozenset[Acl]]


class AclFilter(NamedTuple):
    """Selects bindings by their fields; None and ANY match every value."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY

    def finds_resource(self, pattern: ResourcePattern) -> bool:
        """Returns whether the filter matches the resource pattern of a binding."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == WILDCARD

    def finds_acl(self, acl: Acl) -> bool:
        """Returns whether the filter matches an access control entry, apart from its resource."""
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
        )

    def named_resources(self) -> tuple[ResourcePattern, ...]:
        """Returns the only resource patterns that the filter can match; () if it may match other names as well."""
        if self.resource_type is ResourceType.ANY or self.name is None or self.pattern_type is PatternType.MATCH:
            return ()
        if self.pattern_type is PatternType.ANY:
            types: tuple[PatternType, ...] = (PatternType.LITERAL, PatternType.PREFIXED)
        else:
            types = (self.pattern_type,)
        return tuple(ResourcePattern(self.resource_type, self.name, one) for one in types)

    def found(self, acls: Acls) -> Iterator[AclBinding]:
        """Yields the bindings in `acls` that the filter matches, those of one resource together."""
        for pattern, entries in acls.items():
            if self.finds_resource(pattern):
                for acl in sorted(entries):
                    if self.finds_acl(acl):
                        yield AclBinding(pattern, acl)
