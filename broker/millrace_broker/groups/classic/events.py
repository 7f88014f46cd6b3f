"""What members ask of a classic group, and what they are answered; the fields are those of the protocol's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace_broker.groups.effects import Ticket

UNKNOWN_MEMBER = ""
NO_GENERATION = -1


class JoinProtocol(NamedTuple):
    """One assignor that a member can use, and its metadata for it, which the broker does not read."""

    name: str
    metadata: bytes


class Join(NamedTuple):
    """JoinGroup. `fresh_member_id` is the id of a member that has none yet."""

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
    """A member as its leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to JoinGroup; the members are for the leader alone."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Sync(NamedTuple):
    """SyncGroup; only the leader gives assignments. Protocol type and name come from v5 on."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class SyncResult(NamedTuple):
    """The answer to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """One member that LeaveGroup names: by member id, or by instance id alone (an administrator, KIP-345)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class DescribedMember(NamedTuple):
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Description(NamedTuple):
    """A group as DescribeGroups shows it."""

    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]
