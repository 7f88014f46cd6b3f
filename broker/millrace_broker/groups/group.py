"""The interface between a group and its shard: what every type of group answers to, and the effects that it returns.

A group knows neither sockets nor time. The shard calls a method of `Group` and performs the effects that come back:

    Respond       complete the request that holds the ticket
    SetTimer      call `timer_expired` with this timer after a delay
    CancelTimer   forget a timer, if it is set
    StoreRecords  append records; `stored` is called with the outcome once the in-sync replicas have them or fail to
    Succession    another group takes this one's place, or none does

`StoreRecords` and `Succession` come last among the effects of one event. Checks return the protocol's error code, NONE
where nothing is in the way. `now_ms` is the wall clock's.

The requests of the classic group protocol and their results have the fields of the protocol's messages. Groups of every
type take them: a KIP-848 group may have members that still use the classic protocol.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from millrace.errors import ErrorCode
from millrace_broker.groups.records import CommittedOffset, Record

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
    """Holds what the response to SyncGroup says: an error, or the member's assignment."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """One member that LeaveGroup names: by its id, or, as an administrator does, by its instance id alone (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class Respond(NamedTuple):
    """The result of the request that holds the ticket."""

    ticket: Ticket
    result: object


class SetTimer(NamedTuple):
    """A timer of the group. Where it is set already, it starts from zero again, unless `restarts` is false."""

    timer: Hashable
    delay_ms: int
    restarts: bool = True


class CancelTimer(NamedTuple):
    """A timer that is no longer needed."""

    timer: Hashable


class StoreRecords(NamedTuple):
    """Records to append. The group gets `outcome` back and knows by it what they were for.

    `is_rebalance` says that they begin a new generation or epoch.
    """

    records: tuple[Record, ...]
    outcome: object
    is_rebalance: bool = False


class Succession(NamedTuple):
    """The group that has this one's name from now on, or None; `effects` are performed as the successor's."""

    group: Group | None
    effects: Effects = []  # noqa: RUF012  # never changed


Effect = Respond | SetTimer | CancelTimer | StoreRecords | Succession
Effects = list[Effect]


class Committer(NamedTuple):
    """The client that commits offsets, and its version of OffsetCommit, or of TxnOffsetCommit in a transaction.

    A simple consumer has no member id and generation -1.
    """

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    version: int = 0
    is_transactional: bool = False


class Group(Protocol):
    """One group of any type."""

    group_id: str

    @property
    def type(self) -> str:
        """`classic`, or the name that KIP-848 gives another type."""
        ...

    @property
    def state_name(self) -> str:
        """The state as ListGroups shows it."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """`consumer` for consumers; None for a group that only keeps offsets."""
        ...

    @property
    def member_count(self) -> int:
        """The number of members."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    def check_commit(self, committer: Committer) -> ErrorCode:
        """Checks whether the client may commit offsets."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Checks whether offsets may be fetched; a KIP-848 client names its member and epoch."""
        ...

    def check_delete(self) -> ErrorCode:
        """Checks whether the group may be deleted."""
        ...

    def check_delete_offsets(self) -> ErrorCode:
        """Checks whether offsets of topics without a subscription may be deleted."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether a member subscribes to the topic, or may do so."""
        ...

    def expiry_base_ms(self, offset: CommittedOffset) -> int | None:
        """Returns the time from which retention counts for an offset; None while it may not expire (KIP-211)."""
        ...

    # Requests of members that use the classic protocol.

    def join(self, join: Join, now_ms: int) -> Effects:
        """Handles JoinGroup."""
        ...

    def sync(self, sync: Sync, now_ms: int) -> Effects:
        """Handles SyncGroup."""
        ...

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> tuple[ErrorCode, Effects]:
        """Handles Heartbeat."""
        ...

    def leave(self, leaving: Sequence[Leaving], now_ms: int) -> tuple[list[ErrorCode], Effects]:
        """Handles LeaveGroup; returns an error for each member that it names."""
        ...

    # What the shard tells and asks.

    def tombstones(self) -> list[Record]:
        """Returns the records that remove the group."""
        ...

    def committed(self, committer: Committer, now_ms: int) -> Effects:
        """Takes note that a member has committed offsets, which keeps the session of a classic member alive."""
        ...

    def loaded(self, now_ms: int) -> Effects:
        """Begins every session from the start, as all records are replayed."""
        ...

    def stored(self, outcome: object, error: ErrorCode, now_ms: int) -> Effects:
        """Goes on after a `StoreRecords` of this group, which has succeeded or failed."""
        ...

    def timer_expired(self, timer: Hashable, now_ms: int) -> Effects:
        """Handles a timer of this group that has run out."""
        ...

    def unloaded(self, error: ErrorCode) -> Effects:
        """Refuses all requests that wait, as the group is deleted, replaced, or led by another broker now."""
        ...
