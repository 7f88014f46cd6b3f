"""The messages of SaslAuthenticate, versions 0 to 2.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class SaslAuthenticateRequest(Protocol):
    @property
    def auth_bytes(self) -> bytes: ...


class SaslAuthenticateRequestFields(TypedDict):
    auth_bytes: bytes


class SaslAuthenticateResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def auth_bytes(self) -> bytes: ...

    @property
    def session_lifetime(self) -> timedelta: ...


class SaslAuthenticateResponseFields(TypedDict):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime: NotRequired[int]  # ms
