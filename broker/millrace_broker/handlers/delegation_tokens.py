"""What the requests about delegation tokens share: who may send them, and how the error of one is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from millrace.error_codes import ErrorCode
from millrace.errors import DelegationTokenRequestNotAllowedError, MillraceError
from millrace_broker.security.client_session import ANONYMOUS, ClientSession

NO_TIME_MS = -1


def check_allowed(session: ClientSession) -> None:
    """Raises DelegationTokenRequestNotAllowedError for a client that is anonymous, or has logged in by a token."""
    if session.principal == ANONYMOUS or session.is_by_token:
        raise DelegationTokenRequestNotAllowedError("delegation tokens need a login that is not one by a token")


async def expiry_or_error(session: ClientSession, change: Callable[[], Awaitable[int]]) -> tuple[ErrorCode, int]:
    """Returns what came of a change of a token's expiry, and when the token expires."""
    try:
        check_allowed(session)
        return ErrorCode.NONE, await change()
    except MillraceError as error:
        return error.code, NO_TIME_MS
