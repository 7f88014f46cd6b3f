"""Decides by access control lists, as Apache Kafka's AclAuthorizer does.

    the principal is in super.users              allowed
    no entry at all on the resource              as allow.everyone.if.no.acl.found says
    an entry denies                              denied, whatever else allows
    an entry allows                              allowed
    otherwise                                    denied

An entry that allows READ, WRITE, DELETE or ALTER allows DESCRIBE too, and one that allows ALTER_CONFIGS allows
DESCRIBE_CONFIGS. An entry that denies denies only what it names. Decisions are kept until the lists change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from millrace.errors import InvalidConfigError
from millrace.security.acls import (
    WILDCARD,
    AclOperation,
    Acls,
    PatternType,
    PermissionType,
    ResourceType,
)
from millrace_broker.security.acls.acl_index import AclIndex, matching
from millrace_broker.security.client_session import ClientSession, Principal

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


class AclAuthorizer:
    """An `Authorizer` of access control lists.

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
        """Takes over all lists, and forgets the decisions by those before; the same object changes nothing."""
        if acls is not self._acls:
            self._acls, self._index = acls, AclIndex(acls)
            self._kept.clear()

    def authorize(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Returns whether a client may do an operation on the resource of this name."""
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
        """Returns whether an entry allows the operation on some name that none denies; implied operations don't count.

        A client that is denied it on `*` may not; otherwise it may where resources without entries are everyone's.
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
    """Returns the principals in `super.users`, which are separated by semicolons. Raises InvalidConfigError."""
    return frozenset(_principal(one.strip()) for one in _split(text))


def _split(text: str) -> Iterable[str]:
    """Returns the parts of a list as Java splits it: without those at the end that are empty."""
    return text.rstrip(";").split(";") if text.strip() else ()


def _principal(text: str) -> Principal:
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise InvalidConfigError(f"super.users={text}: expected principals such as User:alice, with ; between them")
    return Principal(kind, name)
