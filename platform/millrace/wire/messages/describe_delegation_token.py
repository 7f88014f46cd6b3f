"""The messages of DescribeDelegationToken, versions 0 to 3.

Made by `python -m millrace_ops.message_types` from `millrace.wire.token_apis`; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, Protocol, TypedDict


class DescribeDelegationTokenRequest(Protocol):
    @property
    def owners(self) -> tuple[DescribeDelegationTokenOwner, ...] | None: ...


class DescribeDelegationTokenRequestFields(TypedDict):
    owners: Sequence[DescribeDelegationTokenOwnerFields] | None


class DescribeDelegationTokenOwner(Protocol):
    @property
    def principal_type(self) -> str: ...

    @property
    def principal_name(self) -> str: ...


class DescribeDelegationTokenOwnerFields(TypedDict):
    principal_type: str
    principal_name: str


class DescribeDelegationTokenResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def tokens(self) -> tuple[DescribedDelegationToken, ...]: ...

    @property
    def throttle_time(self) -> int: ...


class DescribeDelegationTokenResponseFields(TypedDict):
    error_code: int
    tokens: Sequence[DescribedDelegationTokenFields]
    throttle_time: NotRequired[int]


class DescribedDelegationToken(Protocol):
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
    def renewers(self) -> tuple[DescribedDelegationTokenRenewer, ...]: ...

    @property
    def token_requester_principal_type(self) -> str: ...

    @property
    def token_requester_principal_name(self) -> str: ...


class DescribedDelegationTokenFields(TypedDict):
    principal_type: str
    principal_name: str
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    renewers: Sequence[DescribedDelegationTokenRenewerFields]
    token_requester_principal_type: NotRequired[str]
    token_requester_principal_name: NotRequired[str]


class DescribedDelegationTokenRenewer(Protocol):
    @property
    def principal_type(self) -> str: ...

    @property
    def principal_name(self) -> str: ...


class DescribedDelegationTokenRenewerFields(TypedDict):
    principal_type: str
    principal_name: str
