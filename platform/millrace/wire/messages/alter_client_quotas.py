"""The messages of AlterClientQuotas, versions 0 to 1.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class AlterClientQuotasRequest(Protocol):
    @property
    def entries(self) -> tuple[EntryData, ...]: ...

    @property
    def validate_only(self) -> bool: ...


class AlterClientQuotasRequestFields(TypedDict):
    entries: Sequence[EntryDataFields]
    validate_only: bool


class EntryData(Protocol):
    @property
    def entity(self) -> tuple[EntityData, ...]: ...

    @property
    def ops(self) -> tuple[OpData, ...]: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class EntryDataFields(TypedDict):
    entity: Sequence[EntityDataFields]
    ops: NotRequired[Sequence[OpDataFields]]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]


class EntityData(Protocol):
    @property
    def entity_type(self) -> str: ...

    @property
    def entity_name(self) -> str | None: ...


class EntityDataFields(TypedDict):
    entity_type: str
    entity_name: str | None


class OpData(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def value(self) -> float: ...

    @property
    def remove(self) -> bool: ...


class OpDataFields(TypedDict):
    key: str
    value: float
    remove: bool


class AlterClientQuotasResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def entries(self) -> tuple[EntryData, ...]: ...


class AlterClientQuotasResponseFields(TypedDict):
    throttle_time: int  # ms
    entries: Sequence[EntryDataFields]
