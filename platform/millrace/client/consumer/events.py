"""What a member tells of itself to whoever watches it: claims, hand-outs, commits, releases, with their tokens.

Times are nanoseconds of the lease's clock, which all processes of a machine share: the events of several members, put
in order, are a history of ownership (docs/histories.md).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from millrace.client.consumer.assignment import Partition


class Kind(StrEnum):
    """What was done."""

    CLAIM = "claim"
    RELEASE = "release"
    HAND_OUT = "hand-out"
    COMMIT = "commit"


class OwnershipEvent(NamedTuple):
    """One of them. The token is the owner node's czxid; an offset goes with hand-outs and commits."""

    kind: Kind
    member: str
    partition: Partition
    token: int
    began_ns: int
    ended_ns: int
    offset: int = -1


Observe = Callable[[OwnershipEvent], None]


def ignore(_: OwnershipEvent) -> None:
    """No one watches."""
