"""Keeps the public keys by which tokens are checked, from `sasl.oauthbearer.jwks.endpoint.url`: JSON Web Key Sets.

They are fetched at the start, every `…refresh.ms`, and where a token names a key that is not among them; at most once
in ten seconds for that. Until they are there, every token is refused. If a fetch fails, the keys before stay in force.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from urllib.parse import unquote, urlsplit

import aiohttp
import jwt

from millrace.clock import Clock
from millrace_broker.security.authentication.listener_security import TokenRules

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
MAX_BYTES = 1 << 20
UNKNOWN_KEY_INTERVAL_S = 10.0


class JsonWebKeys:
    """The public keys of a JSON Web Key Set (`sasl.oauthbearer.jwks.endpoint.url`), which are fetched repeatedly."""

    def __init__(self, rules: TokenRules, clock: Clock) -> None:
        assert rules.keys_url is not None, "otherwise there are no keys"
        self._url = rules.keys_url
        self._rules = rules
        self._clock = clock
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_at_s = clock.monotonic_s()
        self._is_wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Returns the key with this id, the only key for None; for an unknown id None, and fetches the keys again."""
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        found = self._keys.get(key_id)
        if found is None and self._clock.monotonic_s() - self._fetched_at_s >= UNKNOWN_KEY_INTERVAL_S:
            self._is_wanted.set()
        return found

    def start(self) -> None:
        """Begins to fetch the keys, now and after each refresh interval."""
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Stops the task that fetches the keys."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _keep(self) -> None:
        retry_s = self._rules.retry_s
        while True:
            self._is_wanted.clear()
            self._fetched_at_s = self._clock.monotonic_s()
            try:
                self._keys = parse_keys(await fetch(self._url))
                wait_s, retry_s = self._rules.refresh_s, self._rules.retry_s
            except (OSError, aiohttp.ClientError, TimeoutError, jwt.PyJWTError, ValueError) as error:
                logger.warning("%s: no keys by which to check tokens: %s", self._url, error)
                wait_s = retry_s
                retry_s = min(2 * retry_s, self._rules.retry_max_s)
            await self._wait(wait_s)

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._is_wanted.wait(), seconds)
        except TimeoutError:
            return


def parse_keys(content: bytes) -> dict[str | None, jwt.PyJWK]:
    """Returns the keys of a JSON Web Key Set by their ids. Raises ValueError or PyJWTError for other content."""
    return {key.key_id: key for key in jwt.PyJWKSet.from_json(content.decode()).keys}


async def fetch(url: str) -> bytes:
    """Returns up to `MAX_BYTES` of a `file:` or HTTP URL. Raises OSError, TimeoutError or aiohttp.ClientError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return await asyncio.to_thread(_read, Path(unquote(parts.path)))
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session, session.get(url) as answer:
        return await answer.content.read(MAX_BYTES)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES)
