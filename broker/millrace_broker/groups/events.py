"""The requests of the classic group protocol and their results; the fields are those of the protocol's messages.

Groups of every type take them: a KIP-848 group may have members that still use the classic protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from millrace.errors import ErrorCode

UNKNOWN_MEMBER = ""
NO_GENERATION = -1


class Ticket(Protocol):
    """The request that waits for a response, in the broker a future. A group only hands it back."""

    def done(self) -> bool:
        """Returns whether the request was answered, or its client is gone."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Sends the response."""
        ...


class JoinProtocol(NamedTuple):
    """One assignor that a member can use, and the member's metadata for it, which the broker does not read."""

    name: str
    metadata: bytes


class Join(NamedTuple):
    """JoinGroup. `fresh_member_id` is the id that a member without one is given."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    fresh_member_id: str
    requires_known_member_id: bool
    supports_skipping_assignment: bool


class JoinedMember(NamedTuple):
    """A member as the leader of its group is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The response to JoinGroup. Only the leader is told the members."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Sync(NamedTuple):
    """SyncGroup. Only the leader gives assignments; protocol type and name are sent from version 5 on."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class SyncResult(NamedTuple):
    """The response to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """One member that LeaveGroup names: by its id, or, as an administrator does, by its instance id alone (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None
