"""Delegation tokens, as Apache Kafka has them (KIP-48, KIP-373): their lifetime, their JSON, and the login with one.

    issue ────────── expiry ──────────────────────── max
      now              min(now + period, max)         issue + the life that was asked for, at most
                       is moved by a renewal          delegation.token.max.lifetime.ms

The secret of a token, which its user logs in with, is HMAC-SHA-512 of its id by the brokers' common key. So the secret
is stored nowhere, and requests name a token by its secret.

The JSON is that of Kafka's `/delegation_token/tokens/[id]`:

    {"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Abob","renewers":["User%3Acarol"],
     "issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"…"}

Principals are encoded as the names of users in paths are. Before version 3 there is no requester: it is the owner.

Somebody logs in by SCRAM, with the token's id as the name and its secret in base64 as the password, and 4,096
iterations, as the secret is random already. The credential is made at the first login and kept for the next ones: so
its salt stays the same, as that of an unknown token does.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from millrace.security.sasl.names import Authenticated
from millrace.security.sasl.scram import Known, ScramCredential, new_credential
from millrace.zk.codec import decoded, dump
from millrace.zk.paths import decode_name, encode_name
from millrace_broker.security.client_session import USER, Principal

VERSION = 3
KEPT_CREDENTIALS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A delegation token as brokers keep it; times in milliseconds since 1970.

    `requester` is who asked for it, and `owner` is who a client with this token logs in as.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Returns whether the token can no longer be used or renewed."""
        return min(self.max_ms, self.expiry_ms) < now_ms

    def belongs_to(self, principal: Principal) -> bool:
        """Returns whether `principal` is the owner or a renewer, who may renew, end and see the token."""
        return principal == self.owner or principal in self.renewers

    def expiring(self, now_ms: int, period_ms: int) -> DelegationToken:
        """Returns the token with its expiry set to a period from now, but at most to the end of its life."""
        return replace(self, expiry_ms=min(self.max_ms, now_ms + period_ms))


class IssuedToken(NamedTuple):
    """A delegation token and its secret (an HMAC), by which requests name the token."""

    token: DelegationToken
    hmac: bytes


@dataclass(frozen=True, slots=True)
class TokenSecret:
    """The key, the same on all brokers, with which the secrets of delegation tokens are computed."""

    key: str = field(repr=False)

    def hmac(self, token_id: str) -> bytes:
        """Returns a token's secret: HMAC-SHA-512 of its id by the key, 64 bytes."""
        return hmac.digest(self.key.encode(), token_id.encode(), hashlib.sha512)


class Lifetimes(NamedTuple):
    """How long tokens live at most, and how long a renewal lasts unless a request says so."""

    max_lifetime_ms: int
    expiry_time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A request for a token: who asks, for whom, who may renew it, and its life (0 or less: as long as allowed)."""

    requester: Principal
    owner: Principal
    renewers: tuple[Principal, ...]
    max_lifetime_ms: int

    @property
    def has_only_users(self) -> bool:
        """Returns whether all renewers are of the principal type User, as they must be."""
        return all(one.type == USER for one in self.renewers)


def new_token(request: TokenRequest, token_id: str, now_ms: int, lifetimes: Lifetimes) -> DelegationToken:
    """Returns the token that a request asks for, issued at `now_ms`."""
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


def encode_token(token: DelegationToken) -> bytes:
    """Returns a token's JSON document, as ZooKeeper keeps it."""
    return dump(
        {
            "version": VERSION,
            "owner": encode_name(str(token.owner)),
            "tokenRequester": encode_name(str(token.requester)),
            "renewers": [encode_name(str(one)) for one in token.renewers],
            "issueTimestamp": token.issue_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expiry_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(data: bytes) -> DelegationToken:
    """Returns the token in a JSON document of `encode_token`; raises ZooKeeperError for any other bytes."""
    return decoded(data, "delegation token", _token)


def _token(fields: Any) -> DelegationToken:
    version = int(fields["version"])
    if not 0 < version <= VERSION:
        raise ValueError(f"version {version} is not known")
    return DelegationToken(
        token_id=str(fields["tokenId"]),
        owner=_principal(fields["owner"]),
        requester=_principal(fields["tokenRequester" if version == VERSION else "owner"]),
        renewers=tuple(map(_principal, fields["renewers"])),
        issue_ms=int(fields["issueTimestamp"]),
        max_ms=int(fields["maxTimestamp"]),
        expiry_ms=int(fields["expiryTimestamp"]),
    )


def _principal(text: str) -> Principal:
    kind, colon, name = (decode_name(text) or "").partition(":")
    if not (kind and colon):
        raise ValueError(f"{text!r} is no principal")
    return Principal(kind, name)


def token_login(issued: IssuedToken, mechanism: str) -> Known:
    """Returns the credential by which SCRAM checks a login with a token, and the owner, who is then logged in."""
    token = issued.token
    expires_ms = min(token.expiry_ms, token.max_ms)
    return Known(_credential(issued.hmac, mechanism), Authenticated(token.owner.name, expires_ms, is_by_token=True))


@lru_cache(maxsize=KEPT_CREDENTIALS)
def _credential(secret: bytes, mechanism: str) -> ScramCredential:
    return new_credential(mechanism, b64encode(secret).decode())
