"""Decides by access control lists, as Apache Kafka's AclAuthorizer does, or by the operator's own authorizer.

    authorizer.class.name                                         the authorizer
    (empty)                                                       none: everyone may do everything
    kafka.security.authorizer.AclAuthorizer, or                   `AclAuthorizer`, with super.users and
    org.apache.kafka.metadata.authorizer.StandardAuthorizer       allow.everyone.if.no.acl.found
    MODULE:CLASS                                                  that class of Python, made with all properties

Any other value, and a property that only an authorizer obeys where there is none, stops the start: the broker would be
open although its operator believes it closed.

`AclAuthorizer` decides:

    the principal is in super.users              allowed
    no entry at all on the resource              as allow.everyone.if.no.acl.found says
    an entry denies                              denied, whatever else allows
    an entry allows                              allowed
    otherwise                                    denied

An entry that allows READ, WRITE, DELETE or ALTER allows DESCRIBE too, and one that allows ALTER_CONFIGS allows
DESCRIBE_CONFIGS. An entry that denies denies only what it names. Decisions are kept until the lists change.

Which entries count for the name `orders` (all three together, in no order):

    literal  orders        the resource itself
    literal  *             every resource of the type
    prefixed o, ord, …     looked up by each length that a prefix of the type has

An entry is looked for by its value among those of a resource: for a principal and `User:*`, for a host and `*`, for an
operation and ALL. So the number of entries of a resource does not matter. The index of the lists is made as a whole
after each change and is never changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import product

from millrace.errors import InvalidConfigError
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
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.security.acls.authorizer import Authorizer, PluggableAuthorizer
from millrace_broker.security.client_session import ClientSession, Principal

NO_ENTRIES: frozenset[Acl] = frozenset()
MAX_KEPT_DECISIONS = 10_000
ALLOWING = {
    AclOperation.DESCRIBE: (
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
}

Decision = tuple[Principal, str, AclOperation, ResourceType, str]
NAME = "authorizer.class.name"
ACLS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
NEEDS = ("authorize", "authorize_by_resource_type", "take")


class AclIndex:
    """Finds the access control entries for a resource, and the names of resources that have certain entries."""

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
        """Returns the entries of each literal, prefixed or wildcard resource to which `name` belongs, none if empty."""
        patterns = [ResourcePattern(resource_type, name), ResourcePattern(resource_type, WILDCARD)]
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            patterns.append(ResourcePattern(resource_type, name[:length], PatternType.PREFIXED))
        return [entries for one in patterns if (entries := self._acls.get(one, NO_ENTRIES))]

    def names_with(
        self, resource_type: ResourceType, pattern_type: PatternType, wanted: Iterable[Acl]
    ) -> frozenset[str]:
        """Returns the names of the resources of both types that have at least one of the wanted entries."""
        by_acl = self._names.get((resource_type, pattern_type), {})
        return frozenset(name for acl in wanted for name in by_acl.get(acl, ()))


def matching(
    principal: str, host: str, operations: Collection[AclOperation], permission: PermissionType
) -> Iterator[Acl]:
    """Yields each entry that allows (or denies: `permission`) one of the operations to a principal on a host."""
    for named in product((principal, EVERYONE), (host, EVERY_HOST), (*operations, AclOperation.ALL)):
        yield Acl(*named, permission)


class AclAuthorizer:
    """Decides by the cluster's access control lists what clients may do.

    Args:
        super_users: may do everything.
        allows_if_no_acl: whether everyone may do everything on a resource without entries.
    """

    def __init__(self, super_users: Collection[Principal] = (), *, allows_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allows_if_no_acl = allows_if_no_acl
        self._acls: Acls = {}
        self._index = AclIndex(self._acls)
        self._kept: dict[Decision, bool] = {}

    def take(self, acls: Acls) -> None:
        """Replaces the access control lists, and drops cached decisions; for the same object it does nothing."""
        if acls is not self._acls:
            self._acls, self._index = acls, AclIndex(acls)
            self._kept.clear()

    def authorize(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Returns whether a client may do an operation on the resource `name`: no entry denies it and one allows it."""
        asked = (session.principal, session.host, operation, resource_type, name)
        kept = self._kept.get(asked)
        if kept is None:
            if len(self._kept) >= MAX_KEPT_DECISIONS:
                self._kept.clear()
            kept = self._kept[asked] = self._decide(*asked)
        return kept

    def _decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        entries = self._index.entries_on(resource_type, name)
        if not entries:
            return self._allows_if_no_acl
        denying = matching(str(principal), host, (operation,), PermissionType.DENY)
        if any(acl in each for acl in denying for each in entries):
            return False
        allowing = matching(str(principal), host, ALLOWING.get(operation, (operation,)), PermissionType.ALLOW)
        return any(acl in each for acl in allowing for each in entries)

    def authorize_by_resource_type(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Returns whether an entry allows the operation on a name that no entry denies; implied rights don't count.

        It is False for a client that is denied `*`, else True if everyone may use resources without entries.
        """
        if session.principal in self._super_users:
            return True

        def names(permission: PermissionType, pattern_type: PatternType) -> frozenset[str]:
            wanted = matching(str(session.principal), session.host, (operation,), permission)
            return self._index.names_with(resource_type, pattern_type, wanted)

        denied = names(PermissionType.DENY, PatternType.LITERAL)
        if WILDCARD in denied:
            return False
        if self._allows_if_no_acl:
            return True
        denied_prefixes = names(PermissionType.DENY, PatternType.PREFIXED)
        literals = names(PermissionType.ALLOW, PatternType.LITERAL)
        prefixes = names(PermissionType.ALLOW, PatternType.PREFIXED)
        return (
            WILDCARD in literals
            or any(not _begins_with_one(name, denied_prefixes) for name in prefixes)
            or any(name not in denied and not _begins_with_one(name, denied_prefixes) for name in literals)
        )


def _begins_with_one(name: str, prefixes: frozenset[str]) -> bool:
    return any(name[:length] in prefixes for length in range(1, len(name) + 1)) if prefixes else False


def super_users(text: str) -> frozenset[Principal]:
    """Returns the principals in `super.users`, like `User:alice;User:bob`. Raises InvalidConfigError for other text."""
    return frozenset(_principal(one.strip()) for one in _split(text))


def _split(text: str) -> Iterable[str]:
    """Returns the parts of a text between semicolons, as Java's `split` does: without empty ones at the end."""
    return text.rstrip(";").split(";") if text.strip() else ()


def _principal(text: str) -> Principal:
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise InvalidConfigError(f"super.users={text}: expected principals such as User:alice, with ; between them")
    return Principal(kind, name)


def configured_authorizer(config: BrokerConfig, properties: Mapping[str, str]) -> Authorizer | None:
    """Returns the authorizer of `authorizer.class.name`, None if that is empty. Raises InvalidConfigError."""
    name = config.authorizer_class_name.strip()
    if name in ACLS:
        return AclAuthorizer(super_users(config.super_users), allows_if_no_acl=config.allow_everyone_if_no_acl_found)
    if name:
        return _own(name, properties)
    closes = "allow.everyone.if.no.acl.found" in properties and not config.allow_everyone_if_no_acl_found
    if config.super_users.strip() or closes:
        given = "super.users" if config.super_users.strip() else "allow.everyone.if.no.acl.found"
        raise InvalidConfigError(f"{given}={properties[given]}: Invalid value, {NAME} names no authorizer to obey it")
    return None


def _own(name: str, properties: Mapping[str, str]) -> Authorizer:
    module, _, attribute = name.partition(":")
    if not attribute:
        raise InvalidConfigError(f"{NAME}={name}: Invalid value, expected {ACLS[0]}, {ACLS[1]} or MODULE:CLASS")
    try:
        authorizer_class: PluggableAuthorizer = getattr(import_module(module), attribute)
        authorizer = authorizer_class(properties)
    except Exception as error:  # whatever the operator's own class raises
        raise InvalidConfigError(f"{NAME}={name}: Invalid value, it can't be made: {error!r}") from error
    missing = [one for one in NEEDS if not callable(getattr(authorizer, one, None))]
    if missing:
        raise InvalidConfigError(f"{NAME}={name}: Invalid value, it has no {', '.join(missing)}")
    return authorizer
