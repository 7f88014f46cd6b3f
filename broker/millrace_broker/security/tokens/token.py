"""A delegation token, its secret, and the rules for its lifetime, as Apache Kafka has them (KIP-48, KIP-373).

    issue ────────── expiry ──────────────────────── max
      now              min(now + period, max)         issue + the life that was asked for, at most
                       is moved by a renewal          delegation.token.max.lifetime.ms

The secret of a token, which its user logs in with, is HMAC-SHA-512 of its id by the brokers' common key. So the secret
is stored nowhere, and requests name a token by its secret.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from millrace_broker.security.client_session import USER, Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """What brokers keep of a token; times in milliseconds since the epoch.

    `requester` is who asked for it, and `owner` is whom it stands for.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Returns whether nobody can use or renew the token any more."""
        return min(self.max_ms, self.expiry_ms) < now_ms

    def belongs_to(self, principal: Principal) -> bool:
        """Returns whether somebody may renew, end and see the token: its owner or a renewer."""
        return principal == self.owner or principal in self.renewers

    def expiring(self, now_ms: int, period_ms: int) -> DelegationToken:
        """Returns the token with another expiry: a period from now, at most the end of its life."""
        return replace(self, expiry_ms=min(self.max_ms, now_ms + period_ms))


class IssuedToken(NamedTuple):
    """A token and its secret."""

    token: DelegationToken
    hmac: bytes


@dataclass(frozen=True, slots=True)
class TokenSecret:
    """The key by which the secrets of tokens are made; the same on all brokers."""

    key: str = field(repr=False)

    def hmac(self, token_id: str) -> bytes:
        """Returns the secret of a token, 64 bytes."""
        return hmac.digest(self.key.encode(), token_id.encode(), hashlib.sha512)


class Lifetimes(NamedTuple):
    """How long tokens live at most, and how long a renewal lasts unless the request asks for another time."""

    max_lifetime_ms: int
    expiry_time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """Who asks for a token, for whom, who shall renew it, and for how long; 0 or less asks for the longest life."""

    requester: Principal
    owner: Principal
    renewers: tuple[Principal, ...]
    max_lifetime_ms: int

    @property
    def has_only_users(self) -> bool:
        """Whether all renewers are users, as they have to be."""
        return all(one.type == USER for one in self.renewers)


def new_token(request: TokenRequest, token_id: str, now_ms: int, lifetimes: Lifetimes) -> DelegationToken:
    """Returns the token that is asked for."""
    asked_ms = request.max_lifetime_ms
    life_ms = lifetimes.max_lifetime_ms if asked_ms <= 0 else min(asked_ms, lifetimes.max_lifetime_ms)
    return DelegationToken(
        token_id=token_id,
        owner=request.owner,
        requester=request.requester,
        renewers=request.renewers,
        issue_ms=now_ms,
        max_ms=now_ms + life_ms,
        expiry_ms=now_ms + min(life_ms, lifetimes.expiry_time_ms),
    )
