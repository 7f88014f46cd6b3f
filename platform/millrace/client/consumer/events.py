"""What a member reports to an observer: claims, hand-outs, commits, releases, with their tokens.

Times are nanoseconds of the lease's clock, which all processes of a machine share: the events of several members, put
in order, are a history of ownership (docs/histories.md).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from millrace.client.consumer.assignment import Partition


class Kind(StrEnum):
    """What a member reports that it did: a claim, a release, a hand-out or a commit."""

    CLAIM = "claim"
    RELEASE = "release"
    HAND_OUT = "hand-out"
    COMMIT = "commit"


class OwnershipEvent(NamedTuple):
    """One such report. The token is the owner node's czxid; hand-outs and commits have an offset."""

    kind: Kind
    member: str
    partition: Partition
    token: int
    began_ns: int
    ended_ns: int
    offset: int = -1


Observe = Callable[[OwnershipEvent], None]


def ignore(_: OwnershipEvent) -> None:
    """Does nothing with an event."""
