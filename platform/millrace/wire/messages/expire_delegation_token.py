"""The messages of ExpireDelegationToken, versions 0 to 2.

Made by `python -m millrace_ops.message_types` from `millrace.wire.token_apis`; edit nothing here.
"""

from __future__ import annotations

from typing import NotRequired, Protocol, TypedDict


class ExpireDelegationTokenRequest(Protocol):
    @property
    def hmac(self) -> bytes: ...

    @property
    def expiry_time_period_ms(self) -> int: ...


class ExpireDelegationTokenRequestFields(TypedDict):
    hmac: bytes
    expiry_time_period_ms: int


class ExpireDelegationTokenResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def expiry_timestamp(self) -> int: ...

    @property
    def throttle_time(self) -> int: ...


class ExpireDelegationTokenResponseFields(TypedDict):
    error_code: int
    expiry_timestamp: int
    throttle_time: NotRequired[int]
