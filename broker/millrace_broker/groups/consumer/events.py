"""What happens to a consumer group, and what its members are answered.

    Beat      a member that uses ConsumerGroupHeartbeat joins, stays or leaves
    Join      a member that uses the classic protocol joins, or joins again to learn of a change
    Leave     members that use the classic protocol leave
    Expired   one of a member's timers has run out

Each of these may write records, and waits while those of another are being stored. SyncGroup and Heartbeat only ask
what is known already, and are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace_broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    Assignment,
)
from millrace_broker.groups.consumer.timers import Timer
from millrace_broker.groups.consumer.topic_pattern import any_topic
from millrace_broker.groups.events import Join, Ticket

NOT_SAID = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """ConsumerGroupHeartbeat. None, or -1 for the timeout, means that nothing has changed.

    `may_describe` says which topics the member may describe.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SAID
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    version: int = 1
    client_id: str = ""
    client_host: str = ""
    may_describe: Callable[[str], bool] = field(default=any_topic, compare=False, repr=False)

    @property
    def leaves(self) -> bool:
        """Whether the member leaves, for good or for a while."""
        return self.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH)

    @property
    def says_everything(self) -> bool:
        """Whether the answer has to say everything as well: on joining, and after an error."""
        return self.member_epoch == JOINING_EPOCH or (
            self.rebalance_timeout_ms != NOT_SAID and self.topic_names is not None and self.owned is not None
        )


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat that is accepted. No assignment means that it has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class Refusal(NamedTuple):
    """The answer to a heartbeat that is refused."""

    error: ErrorCode
    message: str | None = None


class Beat(NamedTuple):
    """A heartbeat that was checked and has a member id; the answer goes to the ticket."""

    request: Heartbeat
    ticket: Ticket


class Leave(NamedTuple):
    """Members that LeaveGroup names."""

    member_ids: tuple[str, ...]


class Expired(NamedTuple):
    """A timer that has run out."""

    timer: Timer


Event = Beat | Join | Leave | Expired
