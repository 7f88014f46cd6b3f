"""The delegation tokens of a cluster: makes, renews, ends and finds them, one change at a time.

The metadata store keeps the tokens, whoever has written them, and `TokenManager` has the key to their secrets. A change
that fails has taken effect as a whole or not at all, and may be asked for again.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Collection, Mapping
from uuid import uuid4

from millrace.clock import Clock
from millrace.errors import (
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokensDisabledError,
)
from millrace.uuids import encode_id
from millrace_broker.cluster.store import MetadataStore
from millrace_broker.properties.security_config import TokenConfig
from millrace_broker.security.client_session import Principal
from millrace_broker.security.tokens import (
    DelegationToken,
    IssuedToken,
    Lifetimes,
    TokenRequest,
    TokenSecret,
    new_token,
)

logger = logging.getLogger(__name__)

MayDescribe = Callable[[DelegationToken], bool]


class TokenManager:
    """Makes and changes delegation tokens. Methods raise DelegationTokenError, StorageError or ZooKeeperError."""

    def __init__(self, config: TokenConfig, store: MetadataStore, clock: Clock) -> None:
        self._secret = TokenSecret(config.key) if config.key else None
        self._lifetimes = Lifetimes(config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms)
        self._store = store
        self._clock = clock
        self._changing = asyncio.Lock()
        self._hmacs: dict[str, bytes] = {}

    @property
    def is_enabled(self) -> bool:
        """Returns whether this broker has delegation.token.secret.key, without which there are no tokens."""
        return self._secret is not None

    async def create(self, request: TokenRequest) -> IssuedToken:
        """Returns a new token with its secret (HMAC), once it is stored."""
        secret = self._enabled()
        token = new_token(request, encode_id(uuid4()), self._clock.now_ms(), self._lifetimes)
        async with self._changing:
            await asyncio.to_thread(self._store.set_delegation_token, token)
        logger.info("delegation token %s of %s is made for %s", token.token_id, token.owner, token.requester)
        return IssuedToken(token, secret.hmac(token.token_id))

    async def renew(self, principal: Principal, secret: bytes, period_ms: int) -> int:
        """Renews the token whose HMAC is `secret` for a period from now; returns its new expiry, in ms since 1970.

        A negative period stands for delegation.token.expiry.time.ms.
        """
        async with self._changing:
            token, now_ms = self._own(principal, secret), self._clock.now_ms()
            return await self._move_expiry(
                token, now_ms, self._lifetimes.expiry_time_ms if period_ms < 0 else period_ms
            )

    async def expire(self, principal: Principal, secret: bytes, period_ms: int) -> int:
        """Lets the token with the HMAC `secret` expire after a period, at once if negative; returns the time in ms."""
        async with self._changing:
            token, now_ms = self._own(principal, secret), self._clock.now_ms()
            if period_ms >= 0:
                return await self._move_expiry(token, now_ms, period_ms)
            await asyncio.to_thread(self._store.remove_delegation_token, token.token_id)
            return now_ms

    def describe(
        self, principal: Principal, owners: Collection[Principal] | None, may_describe: MayDescribe
    ) -> list[IssuedToken]:
        """Returns the tokens of `owners` (None: all) that `principal` owns or may renew, or `may_describe` allows."""
        secret = self._enabled()
        return [
            IssuedToken(token, secret.hmac(token.token_id))
            for token in self._tokens().values()
            if (owners is None or any(map(token.belongs_to, owners)))
            and (token.belongs_to(principal) or may_describe(token))
        ]

    def find(self, token_id: str) -> IssuedToken | None:
        """Returns the token with this id and its secret, for a login; None where there is none, or it has expired."""
        token = self._tokens().get(token_id)
        if self._secret is None or token is None or token.is_expired(self._clock.now_ms()):
            return None
        return IssuedToken(token, self._secret.hmac(token_id))

    async def remove_expired(self) -> None:
        """Removes the tokens that have expired from the store."""
        now_ms = self._clock.now_ms()
        async with self._changing:
            for token in [one for one in self._tokens().values() if one.is_expired(now_ms)]:
                await asyncio.to_thread(self._store.remove_delegation_token, token.token_id)
                logger.info("delegation token %s of %s has expired", token.token_id, token.owner)

    def _tokens(self) -> Mapping[str, DelegationToken]:
        return self._store.image().delegation_tokens

    def _enabled(self) -> TokenSecret:
        if self._secret is None:
            raise DelegationTokensDisabledError("this broker has no delegation.token.secret.key")
        return self._secret

    def _own(self, principal: Principal, secret: bytes) -> DelegationToken:
        """Returns the token of this HMAC. Raises a DelegationTokenError unless `principal` owns it or may renew it."""
        key, tokens = self._enabled(), self._tokens()
        self._hmacs = {token_id: self._hmacs.get(token_id) or key.hmac(token_id) for token_id in tokens}
        named = [one for one, each in self._hmacs.items() if hmac.compare_digest(each, secret)]
        if not named:
            raise DelegationTokenNotFoundError("no delegation token has this secret")
        token = tokens[named[0]]
        if not token.belongs_to(principal):
            raise DelegationTokenOwnerMismatchError(f"{principal} is neither its owner nor a renewer")
        return token

    async def _move_expiry(self, token: DelegationToken, now_ms: int, period_ms: int) -> int:
        if token.is_expired(now_ms):
            raise DelegationTokenExpiredError(f"delegation token {token.token_id} has expired")
        moved = token.expiring(now_ms, period_ms)
        await asyncio.to_thread(self._store.set_delegation_token, moved)
        return moved.expiry_ms
