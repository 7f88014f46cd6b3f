"""The messages of Heartbeat, versions 0 to 4.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class HeartbeatRequest(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def generation_id(self) -> int: ...

    @property
    def member_id(self) -> str: ...

    @property
    def group_instance_id(self) -> str | None: ...


class HeartbeatRequestFields(TypedDict):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: NotRequired[str | None]


class HeartbeatResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def throttle_time(self) -> timedelta: ...


class HeartbeatResponseFields(TypedDict):
    error_code: int
    throttle_time: NotRequired[int]  # ms
