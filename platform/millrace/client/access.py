"""Who may use a cluster, and how much: access control lists, users, quotas and delegation tokens.

    access control lists    DescribeAcls, CreateAcls, DeleteAcls
    users                   who log in by SCRAM (KIP-554); passwords don't leave this process, only their hashes
    quotas                  of users, clients and addresses (KIP-546)
    delegation tokens       made, renewed, ended and listed (KIP-48)

When a change returns, the broker that was asked obeys it; the others follow a moment later.

Brokers serve requests about tokens only to clients that have authenticated, by other means than a token. A request to
renew or end a token carries the token's secret, which is looked up by the token's id: its owner and its renewers may
see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection, asking, asking_for
from millrace.errors import DelegationTokenNotFoundError, InvalidRequestError
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.security.sasl.scram import SCRAM_HASHES, SCRAM_NUMBERS, SCRAM_TYPES, new_salt, salted_password
from millrace.wire.messages import (
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)

if TYPE_CHECKING:
    from millrace.wire.messages.create_delegation_token import CreateDelegationTokenResponse
    from millrace.wire.messages.delete_acls import DeleteAclsMatchingAcl
    from millrace.wire.messages.describe_acls import DescribeAclsRequestFields
    from millrace.wire.messages.describe_delegation_token import DescribedDelegationToken


def find_acls(cluster: Cluster, wanted: AclFilter) -> list[AclBinding]:
    """Returns the access control bindings that a filter matches, sorted; raises BrokerError where it is refused."""
    answer = cluster.on_any(asking(DESCRIBE_ACLS.ask(_filter(wanted)), "access control lists"))
    return sorted(
        AclBinding(
            _pattern(resource.resource_type, resource.resource_name, resource.pattern_type),
            _acl(one.principal, one.host, one.operation, one.permission_type),
        )
        for resource in answer.resources
        for one in resource.acls
    )


def create_acls(cluster: Cluster, bindings: Sequence[AclBinding]) -> None:
    """Adds access control bindings; one that exists already stays as it is.

    Raises BrokerError for the first binding that a broker refuses; other bindings may have been added.
    """
    ask = CREATE_ACLS.ask(
        {
            "creations": [
                {
                    "resource_type": pattern.resource_type,
                    "resource_name": pattern.name,
                    "resource_pattern_type": pattern.pattern_type,
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": acl.operation,
                    "permission_type": acl.permission,
                }
                for pattern, acl in bindings
            ]
        }
    )
    answer = cluster.on_any(lambda connection: connection.request(*ask))
    for (pattern, _), result in zip(bindings, answer.results, strict=True):
        check(result.error_code, f"ACL of {pattern.resource_type.pascal} {pattern.name}", result.error_message)


def delete_acls(cluster: Cluster, wanted: Sequence[AclFilter]) -> list[AclBinding]:
    """Deletes the access control bindings that the filters match, and returns the deleted ones, sorted.

    Raises BrokerError for the first filter that a broker refuses; what the other filters match may have been deleted.
    """
    ask = DELETE_ACLS.ask({"filters": [_filter(one) for one in wanted]})
    answer = cluster.on_any(lambda connection: connection.request(*ask))
    for result in answer.filter_results:
        check(result.error_code, "access control lists", result.error_message)
    return sorted(_deleted(one) for result in answer.filter_results for one in result.matching_acls)


def _deleted(one: DeleteAclsMatchingAcl) -> AclBinding:
    pattern = _pattern(one.resource_type, one.resource_name, one.pattern_type)
    check(one.error_code, f"ACL of {pattern.resource_type.pascal} {pattern.name}", one.error_message)
    return AclBinding(pattern, _acl(one.principal, one.host, one.operation, one.permission_type))


def _filter(wanted: AclFilter) -> DescribeAclsRequestFields:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _pattern(resource_type: int, name: str, pattern_type: int) -> ResourcePattern:
    return ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type))


def _acl(principal: str, host: str, operation: int, permission: int) -> Acl:
    return Acl(principal, host, AclOperation(operation), PermissionType(permission))


class Users:
    """Lists, sets and deletes the SCRAM credentials of a cluster's users."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> dict[str, dict[str, int]]:
        """Returns {user: {SCRAM mechanism: iterations}} for all users with credentials. Raises BrokerError."""

        def action(connection: Connection) -> dict[str, dict[str, int]]:
            answer = asking(DESCRIBE_USER_SCRAM_CREDENTIALS.ask({"users": None}), "users")(connection)
            for one in answer.results:
                check(one.error_code, f"user {one.user}", one.error_message)
            return {
                one.user: {SCRAM_TYPES[info.mechanism]: info.iterations for info in one.credential_infos}
                for one in answer.results
            }

        return self._cluster.on_controller(action)

    def set_password(self, user: str, mechanisms: Sequence[str], password: str, iterations: int) -> None:
        """Sets a user's password for these SCRAM mechanisms; credentials for other ones stay. Raises BrokerError."""
        salts = [(mechanism, new_salt()) for mechanism in mechanisms]
        ask = ALTER_USER_SCRAM_CREDENTIALS.ask(
            {
                "deletions": (),
                "upsertions": [
                    {
                        "name": user,
                        "mechanism": SCRAM_NUMBERS[mechanism],
                        "iterations": iterations,
                        "salt": salt,
                        "salted_password": salted_password(SCRAM_HASHES[mechanism], password, salt, iterations),
                    }
                    for mechanism, salt in salts
                ],
            }
        )
        self._cluster.on_controller(asking_for(ask, lambda answer: answer.results[0], f"user {user}"))

    def delete(self, user: str, mechanisms: Sequence[str]) -> None:
        """Removes a user's credentials for these SCRAM mechanisms; if one is missing, none, and raises BrokerError."""
        numbers = [SCRAM_NUMBERS[one] for one in mechanisms]
        ask = ALTER_USER_SCRAM_CREDENTIALS.ask(
            {"deletions": [{"name": user, "mechanism": number} for number in numbers], "upsertions": ()}
        )
        self._cluster.on_controller(asking_for(ask, lambda answer: answer.results[0], f"user {user}"))


USER, CLIENT_ID, ADDRESS = "user", "client-id", "ip"

Entity = Mapping[str, str | None]  # names by type; None is the default user, client or address


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """An entity (a user, a client id or both) and its quotas by property, such as `producer_byte_rate`."""

    entity: Entity
    quotas: Mapping[str, float]


class Quotas:
    """Lists and changes the client quotas of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> list[EntityQuotas]:
        """Returns all entities that have quotas. Raises BrokerError."""
        ask = DESCRIBE_CLIENT_QUOTAS.ask({"components": (), "strict": False})
        answer = self._cluster.on_controller(asking(ask, "quotas"))
        return [
            EntityQuotas(
                {one.entity_type: one.entity_name for one in entry.entity},
                {one.key: one.value for one in entry.values},
            )
            for entry in answer.entries or ()
        ]

    def alter(self, entity: Entity, values: Mapping[str, float], unset: Iterable[str] = ()) -> None:
        """Sets quotas of an entity to `values`, removes those in `unset`; raises InvalidRequestError, BrokerError."""
        operations = [*((key, value, False) for key, value in values.items()), *((key, 0.0, True) for key in unset)]
        ask = ALTER_CLIENT_QUOTAS.ask(
            {
                "entries": [
                    {
                        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                        "ops": [{"key": key, "value": value, "remove": remove} for key, value, remove in operations],
                    }
                ],
                "validate_only": False,
            }
        )
        self._cluster.on_controller(asking_for(ask, lambda answer: answer.entries[0], "quotas"))


BY_BROKER = -1  # the broker's own time is taken


class TokenPrincipal(NamedTuple):
    """A user to whom a delegation token belongs or who may renew it, as text `User:alice`."""

    principal_type: str
    principal_name: str

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.principal_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInformation:
    """A delegation token; times are in milliseconds since the epoch, and `hmac` is the token's secret."""

    token_id: str
    owner: TokenPrincipal
    requester: TokenPrincipal
    renewers: tuple[TokenPrincipal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)


class DelegationTokens:
    """Manages the delegation tokens of a cluster. Every method may raise BrokerError, as for a missing permission."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(
        self,
        *,
        owner: TokenPrincipal | None = None,
        renewers: Sequence[TokenPrincipal] = (),
        max_lifetime_ms: int = BY_BROKER,
    ) -> TokenInformation:
        """Creates and returns a delegation token of `owner` (None: this client's user), which `renewers` may renew."""
        ask = CREATE_DELEGATION_TOKEN.ask(
            {
                "renewers": [
                    {"principal_type": one.principal_type, "principal_name": one.principal_name} for one in renewers
                ],
                "max_lifetime": max_lifetime_ms,
                "owner_principal_type": None if owner is None else owner.principal_type,
                "owner_principal_name": None if owner is None else owner.principal_name,
            }
        )
        return _information(self._cluster.on_any(asking(ask, "delegation token")), renewers)

    def renew(self, token_id: str, period_ms: int = BY_BROKER) -> int:
        """Lets a delegation token be valid for `period_ms` from now; returns its new end, in ms since the epoch."""
        ask = RENEW_DELEGATION_TOKEN.ask({"hmac": self.find(token_id).hmac, "renew_period": period_ms})
        return self._cluster.on_any(asking(ask, f"delegation token {token_id}")).expiry_timestamp

    def expire(self, token_id: str, period_ms: int = BY_BROKER) -> int:
        """Lets a delegation token expire after `period_ms`, by default now; returns when, in ms since the epoch."""
        ask = EXPIRE_DELEGATION_TOKEN.ask({"hmac": self.find(token_id).hmac, "expiry_time_period": period_ms})
        return self._cluster.on_any(asking(ask, f"delegation token {token_id}")).expiry_timestamp

    def list(self, owners: Sequence[TokenPrincipal] | None = None) -> list[TokenInformation]:
        """Returns the delegation tokens of these owners, or of all, as far as this client's user may see them."""
        ask = DESCRIBE_DELEGATION_TOKEN.ask(
            {
                "owners": None
                if owners is None
                else [{"principal_type": one.principal_type, "principal_name": one.principal_name} for one in owners]
            }
        )
        answer = self._cluster.on_any(asking(ask, "delegation tokens"))
        found = (
            _information(one, (TokenPrincipal(each.principal_type, each.principal_name) for each in one.renewers))
            for one in answer.tokens
        )
        return sorted(found, key=lambda one: (one.issue_ms, one.token_id))

    def find(self, token_id: str) -> TokenInformation:
        """Returns a delegation token.

        Raises DelegationTokenNotFoundError where this client's user can see no token with this id.
        """
        for one in self.list():
            if one.token_id == token_id:
                return one
        raise DelegationTokenNotFoundError(f"there is no delegation token {token_id} that may be seen")


def parse_principal(text: str) -> TokenPrincipal:
    """Returns the principal that a text such as `User:alice` names. Raises InvalidRequestError for another form."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise InvalidRequestError(f"{text!r}: a principal has the form User:NAME")
    return TokenPrincipal(kind, name)


def _information(
    one: CreateDelegationTokenResponse | DescribedDelegationToken, renewers: Iterable[TokenPrincipal]
) -> TokenInformation:
    return TokenInformation(
        token_id=one.token_id,
        owner=TokenPrincipal(one.principal_type, one.principal_name),
        requester=TokenPrincipal(one.token_requester_principal_type, one.token_requester_principal_name),
        renewers=tuple(renewers),
        issue_ms=one.issue_timestamp,
        expiry_ms=one.expiry_timestamp,
        max_ms=one.max_timestamp,
        hmac=one.hmac,
    )
