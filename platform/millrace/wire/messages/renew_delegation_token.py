"""The messages of RenewDelegationToken, versions 0 to 2.

Made by `python -m millrace_ops.message_types` from `millrace.wire.token_apis`; edit nothing here.
"""

from __future__ import annotations

from typing import NotRequired, Protocol, TypedDict


class RenewDelegationTokenRequest(Protocol):
    @property
    def hmac(self) -> bytes: ...

    @property
    def renew_period_ms(self) -> int: ...


class RenewDelegationTokenRequestFields(TypedDict):
    hmac: bytes
    renew_period_ms: int


class RenewDelegationTokenResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def expiry_timestamp(self) -> int: ...

    @property
    def throttle_time(self) -> int: ...


class RenewDelegationTokenResponseFields(TypedDict):
    error_code: int
    expiry_timestamp: int
    throttle_time: NotRequired[int]
