"""Delegation tokens of a cluster (KIP-48): made, renewed, ended and listed.

Brokers serve these requests only to clients that have authenticated, by other means than a token. A request to renew or
end a token carries the token's secret, which is looked up by the token's id: its owner and its renewers may see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.errors import DelegationTokenNotFoundError, InvalidRequestError
from millrace.wire.messages import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)

if TYPE_CHECKING:
    from millrace.wire.messages.create_delegation_token import CreateDelegationTokenRequestFields
    from millrace.wire.messages.describe_delegation_token import (
        DescribedDelegationToken,
        DescribeDelegationTokenRequestFields,
    )
    from millrace.wire.messages.expire_delegation_token import ExpireDelegationTokenRequestFields
    from millrace.wire.messages.renew_delegation_token import RenewDelegationTokenRequestFields

BY_BROKER = -1  # the broker's own time is taken


class TokenPrincipal(NamedTuple):
    """A user, in Kafka's form `User:alice`."""

    principal_type: str
    principal_name: str

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.principal_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInformation:
    """A token; times in milliseconds since the epoch. `hmac` is its secret."""

    token_id: str
    owner: TokenPrincipal
    requester: TokenPrincipal
    renewers: tuple[TokenPrincipal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)


class DelegationTokens:
    """The tokens of a cluster. Every method may raise BrokerError, with the code of what is not allowed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(
        self,
        *,
        owner: TokenPrincipal | None = None,
        renewers: Sequence[TokenPrincipal] = (),
        max_lifetime_ms: int = BY_BROKER,
    ) -> TokenInformation:
        """Creates a token of the owner, by default of this client's own user, and returns it."""
        fields: CreateDelegationTokenRequestFields = {
            "renewers": [
                {"principal_type": one.principal_type, "principal_name": one.principal_name} for one in renewers
            ],
            "max_lifetime": max_lifetime_ms,
            "owner_principal_type": None if owner is None else owner.principal_type,
            "owner_principal_name": None if owner is None else owner.principal_name,
        }
        made = self._cluster.on_any(lambda connection: connection.request(CREATE_DELEGATION_TOKEN, fields))
        check(made.error_code, "delegation token")
        own = TokenPrincipal(made.principal_type, made.principal_name)
        return TokenInformation(
            token_id=made.token_id,
            owner=own,
            requester=TokenPrincipal(made.token_requester_principal_type, made.token_requester_principal_name),
            renewers=tuple(renewers),
            issue_ms=made.issue_timestamp,
            expiry_ms=made.expiry_timestamp,
            max_ms=made.max_timestamp,
            hmac=made.hmac,
        )

    def renew(self, token_id: str, period_ms: int = BY_BROKER) -> int:
        """Lets a token live on for a period from now, and returns when it expires."""
        fields: RenewDelegationTokenRequestFields = {"hmac": self.find(token_id).hmac, "renew_period": period_ms}

        def action(connection: Connection) -> int:
            answer = connection.request(RENEW_DELEGATION_TOKEN, fields)
            check(answer.error_code, f"delegation token {token_id}")
            return answer.expiry_timestamp

        return self._cluster.on_any(action)

    def expire(self, token_id: str, period_ms: int = BY_BROKER) -> int:
        """Ends a token after a period, at once unless one is given, and returns when."""
        secret = self.find(token_id).hmac
        fields: ExpireDelegationTokenRequestFields = {"hmac": secret, "expiry_time_period": period_ms}

        def action(connection: Connection) -> int:
            answer = connection.request(EXPIRE_DELEGATION_TOKEN, fields)
            check(answer.error_code, f"delegation token {token_id}")
            return answer.expiry_timestamp

        return self._cluster.on_any(action)

    def list(self, owners: Sequence[TokenPrincipal] | None = None) -> list[TokenInformation]:
        """Returns the tokens of some owners, or of all, that this client's user may see."""
        fields: DescribeDelegationTokenRequestFields = {
            "owners": None
            if owners is None
            else [{"principal_type": one.principal_type, "principal_name": one.principal_name} for one in owners]
        }
        answer = self._cluster.on_any(lambda connection: connection.request(DESCRIBE_DELEGATION_TOKEN, fields))
        check(answer.error_code, "delegation tokens")
        return sorted(map(_information, answer.tokens), key=lambda one: (one.issue_ms, one.token_id))

    def find(self, token_id: str) -> TokenInformation:
        """Returns a token; raises DelegationTokenNotFoundError where there is none that this client's user may see."""
        for one in self.list():
            if one.token_id == token_id:
                return one
        raise DelegationTokenNotFoundError(f"there is no delegation token {token_id} that may be seen")


def parse_principal(text: str) -> TokenPrincipal:
    """Returns the principal in `User:alice`. Raises InvalidRequestError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise InvalidRequestError(f"{text!r}: a principal has the form User:NAME")
    return TokenPrincipal(kind, name)


def _information(one: DescribedDelegationToken) -> TokenInformation:
    return TokenInformation(
        token_id=one.token_id,
        owner=TokenPrincipal(one.principal_type, one.principal_name),
        requester=TokenPrincipal(one.token_requester_principal_type, one.token_requester_principal_name),
        renewers=tuple(TokenPrincipal(each.principal_type, each.principal_name) for each in one.renewers),
        issue_ms=one.issue_timestamp,
        expiry_ms=one.expiry_timestamp,
        max_ms=one.max_timestamp,
        hmac=one.hmac,
    )
