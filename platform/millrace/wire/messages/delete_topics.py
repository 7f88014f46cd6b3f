"""The messages of DeleteTopics, versions 1 to 6.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class DeleteTopicsRequest(Protocol):
    @property
    def topic_names(self) -> tuple[str, ...]: ...

    @property
    def timeout(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[DeleteTopicState, ...]: ...


class DeleteTopicsRequestFields(TypedDict):
    topic_names: NotRequired[Sequence[str]]
    timeout: int  # ms
    topics: NotRequired[Sequence[DeleteTopicStateFields]]


class DeleteTopicState(Protocol):
    @property
    def name(self) -> str | None: ...

    @property
    def topic_id(self) -> UUID | None: ...


class DeleteTopicStateFields(TypedDict):
    name: NotRequired[str | None]
    topic_id: UUID | None


class DeleteTopicsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def responses(self) -> tuple[DeletableTopicResult, ...]: ...


class DeleteTopicsResponseFields(TypedDict):
    throttle_time: int  # ms
    responses: Sequence[DeletableTopicResultFields]


class DeletableTopicResult(Protocol):
    @property
    def name(self) -> str | None: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def topic_id(self) -> UUID | None: ...


class DeletableTopicResultFields(TypedDict):
    name: str | None
    error_code: int
    error_message: NotRequired[str | None]
    topic_id: NotRequired[UUID | None]
