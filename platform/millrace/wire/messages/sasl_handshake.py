"""The messages of SaslHandshake, versions 0 to 1.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, Protocol, TypedDict


class SaslHandshakeRequest(Protocol):
    @property
    def mechanism(self) -> str: ...


class SaslHandshakeRequestFields(TypedDict):
    mechanism: str


class SaslHandshakeResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def mechanisms(self) -> tuple[str, ...]: ...


class SaslHandshakeResponseFields(TypedDict):
    error_code: int
    mechanisms: NotRequired[Sequence[str]]
