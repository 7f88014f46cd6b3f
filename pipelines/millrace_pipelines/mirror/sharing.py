"""How the instances of a mirror share out partitions: each belongs to one member, by rendezvous hashing.

The group's leader tells all members who they are (`encode_members`), and each works out what is its own. So a topic
that is new, grows or pauses needs no rebalance, and a member that comes or goes takes or leaves its own share alone.

A command that has changed states joins as an observer, which gets no partitions (`barrier`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

PROTOCOL_TYPE = "mirror"
PROTOCOL = "rendezvous"
SCORE_BYTES = 8
OBSERVER = b"observer"
"""What a member tells of itself that mirrors nothing."""


def group_of(source: str) -> str:
    """Returns the group, at the target, of the instances that mirror a source; it has the progress, too."""
    return f"millrace-mirror-{source}"


def owner(members: Iterable[str], topic: str, partition: int) -> str:
    """Returns the member to which a partition of the source belongs."""
    return max(sorted(members), key=lambda member: _score(member, topic, partition))


def encode_members(members: Iterable[str]) -> bytes:
    """Returns the assignment that every member gets."""
    return json.dumps({"members": sorted(members)}).encode()


def decode_members(assignment: bytes) -> Sequence[str]:
    """Returns the members in an assignment; none in one that says nothing."""
    return tuple(json.loads(assignment)["members"]) if assignment else ()


def assign(metadata: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Returns the assignments of a group, for its leader."""
    mirroring = [member for member, told in metadata.items() if told != OBSERVER]
    return dict.fromkeys(metadata, encode_members(mirroring))


def _score(member: str, topic: str, partition: int) -> bytes:
    return blake2b(f"{member}\0{topic}\0{partition}".encode(), digest_size=SCORE_BYTES).digest()
