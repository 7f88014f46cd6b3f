"""The messages of AlterUserScramCredentials, version 0.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypedDict


class AlterUserScramCredentialsRequest(Protocol):
    @property
    def deletions(self) -> tuple[ScramCredentialDeletion, ...]: ...

    @property
    def upsertions(self) -> tuple[ScramCredentialUpsertion, ...]: ...


class AlterUserScramCredentialsRequestFields(TypedDict):
    deletions: Sequence[ScramCredentialDeletionFields]
    upsertions: Sequence[ScramCredentialUpsertionFields]


class ScramCredentialDeletion(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def mechanism(self) -> int: ...


class ScramCredentialDeletionFields(TypedDict):
    name: str
    mechanism: int


class ScramCredentialUpsertion(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def mechanism(self) -> int: ...

    @property
    def iterations(self) -> int: ...

    @property
    def salt(self) -> bytes: ...

    @property
    def salted_password(self) -> bytes: ...


class ScramCredentialUpsertionFields(TypedDict):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def results(self) -> tuple[AlterUserScramCredentialsResult, ...]: ...


class AlterUserScramCredentialsResponseFields(TypedDict):
    throttle_time: int  # ms
    results: Sequence[AlterUserScramCredentialsResultFields]


class AlterUserScramCredentialsResult(Protocol):
    @property
    def user(self) -> str: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class AlterUserScramCredentialsResultFields(TypedDict):
    user: str
    error_code: int
    error_message: str | None
