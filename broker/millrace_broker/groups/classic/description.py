"""What DescribeGroups shows of a classic group."""

from __future__ import annotations

from typing import NamedTuple


class DescribedMember(NamedTuple):
    """One member. `metadata` and `assignment` are the bytes that the clients exchange."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Description(NamedTuple):
    """A classic group as DescribeGroups shows it."""

    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]
