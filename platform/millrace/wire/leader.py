"""The leader of a partition, told in the tagged fields of Produce and Fetch answers (KIP-951).

    current leader    leader id i32, leader epoch i32, tagged fields
    node endpoints    [node id i32, host, port i32, rack, tagged fields]

A client that asked the wrong broker can so go to the right one without asking for metadata first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace.wire.encoder import Encoder


class LeaderHint(NamedTuple):
    """A partition's leader and its epoch as this broker knows them; -1 where it does not."""

    leader: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """The address at which clients reach a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


def encode_current_leader(hint: LeaderHint) -> bytes:
    """Returns the content of the tagged field."""
    out = Encoder(flexible=True)
    out.int32(hint.leader)
    out.int32(hint.leader_epoch)
    out.no_tagged_fields()
    return out.joined()


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Returns the content of the tagged field."""
    out = Encoder(flexible=True)
    out.array_length(len(endpoints))
    for endpoint in endpoints:
        out.int32(endpoint.node_id)
        out.string(endpoint.host)
        out.int32(endpoint.port)
        out.string(endpoint.rack)
        out.no_tagged_fields()
    return out.joined()
