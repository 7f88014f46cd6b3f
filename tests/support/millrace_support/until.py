"""Waits on the event loop until a condition holds that no event tells of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(is_true: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Returns once the condition holds, which it checks every millisecond; raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not is_true():  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0.001)
