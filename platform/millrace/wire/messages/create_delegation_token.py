"""The messages of CreateDelegationToken, versions 0 to 3.

Made by `python -m millrace_ops.message_types` from `millrace.wire.token_apis`; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, Protocol, TypedDict


class CreateDelegationTokenRequest(Protocol):
    @property
    def renewers(self) -> tuple[CreatableRenewers, ...]: ...

    @property
    def max_lifetime_ms(self) -> int: ...

    @property
    def owner_principal_type(self) -> str | None: ...

    @property
    def owner_principal_name(self) -> str | None: ...


class CreateDelegationTokenRequestFields(TypedDict):
    renewers: Sequence[CreatableRenewersFields]
    max_lifetime_ms: int
    owner_principal_type: NotRequired[str | None]
    owner_principal_name: NotRequired[str | None]


class CreatableRenewers(Protocol):
    @property
    def principal_type(self) -> str: ...

    @property
    def principal_name(self) -> str: ...


class CreatableRenewersFields(TypedDict):
    principal_type: str
    principal_name: str


class CreateDelegationTokenResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def principal_type(self) -> str: ...

    @property
    def principal_name(self) -> str: ...

    @property
    def issue_timestamp(self) -> int: ...

    @property
    def expiry_timestamp(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def token_id(self) -> str: ...

    @property
    def hmac(self) -> bytes: ...

    @property
    def throttle_time(self) -> int: ...

    @property
    def token_requester_principal_type(self) -> str: ...

    @property
    def token_requester_principal_name(self) -> str: ...


class CreateDelegationTokenResponseFields(TypedDict):
    error_code: int
    principal_type: str
    principal_name: str
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    throttle_time: NotRequired[int]
    token_requester_principal_type: NotRequired[str]
    token_requester_principal_name: NotRequired[str]
