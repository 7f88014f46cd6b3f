"""The messages of DescribeUserScramCredentials, version 0.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypedDict


class DescribeUserScramCredentialsRequest(Protocol):
    @property
    def users(self) -> tuple[UserName, ...] | None: ...


class DescribeUserScramCredentialsRequestFields(TypedDict):
    users: Sequence[UserNameFields] | None


class UserName(Protocol):
    @property
    def name(self) -> str: ...


class UserNameFields(TypedDict):
    name: str


class DescribeUserScramCredentialsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def results(self) -> tuple[DescribeUserScramCredentialsResult, ...]: ...


class DescribeUserScramCredentialsResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResultFields]


class DescribeUserScramCredentialsResult(Protocol):
    @property
    def user(self) -> str: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def credential_infos(self) -> tuple[CredentialInfo, ...]: ...


class DescribeUserScramCredentialsResultFields(TypedDict):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[CredentialInfoFields]


class CredentialInfo(Protocol):
    @property
    def mechanism(self) -> int: ...

    @property
    def iterations(self) -> int: ...


class CredentialInfoFields(TypedDict):
    mechanism: int
    iterations: int
