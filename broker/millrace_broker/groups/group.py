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

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from millrace.errors import ErrorCode
from millrace_broker.groups.records import CommittedOffset, Record

UNKNOWN_MEMBER = ""
NO_GENERATION = -1


class Ticket(Protocol):
    """The future of a request's response. A group only hands it back, in `Respond`."""

    def done(self) -> bool:
        """Returns whether the request was answered, or its client is gone."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Answers the request."""
        ...


class JoinProtocol(NamedTuple):
    """An assignor that a member offers, and the member's metadata for it, which the broker passes on."""

    name: str
    metadata: bytes


class Join(NamedTuple):
    """The request JoinGroup. `fresh_member_id` is the id that a member without one is given."""

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
    """A member as its group's leader sees it in the response to JoinGroup."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The response to JoinGroup. Only the leader's has the members."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Sync(NamedTuple):
    """The request SyncGroup. Only the leader's has assignments; protocol type and name are sent from version 5 on."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class SyncResult(NamedTuple):
    """The response to SyncGroup: an error, or the member's assignment."""

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
    """An effect: answer the request whose future is `ticket`."""

    ticket: Ticket
    result: object


class SetTimer(NamedTuple):
    """An effect: start a timer of the group; one that runs starts from zero again, unless `restarts` is false."""

    timer: Hashable
    delay_ms: int
    restarts: bool = True


class CancelTimer(NamedTuple):
    """An effect: cancel a timer of the group."""

    timer: Hashable


class StoreRecords(NamedTuple):
    """An effect: append records, and then call the group's `stored` with `outcome`, which says what they were for.

    `is_rebalance` says that they begin a new generation or epoch. Where `delayed` is given, the next records build on
    these, so what becomes of them has to be known: it is called each time they have waited for replicas for long, and
    `stored` only when they are replicated or lost.
    """

    records: tuple[Record, ...]
    outcome: object
    is_rebalance: bool = False
    delayed: Callable[[], Effects] | None = None


class Succession(NamedTuple):
    """An effect: another group, or none, takes this one's name; then perform `effects` for it."""

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
    """A group of any type, as the shard and the coordinator use it."""

    group_id: str

    @property
    def type(self) -> str:
        """`classic`, or `consumer` for a group of KIP-848."""
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
        """Returns NONE if the client may commit offsets, else the error."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Returns NONE if offsets may be fetched, else the error; a KIP-848 client names its member and epoch."""
        ...

    def check_delete(self) -> ErrorCode:
        """Returns NONE if the group may be deleted, else the error."""
        ...

    def check_delete_offsets(self) -> ErrorCode:
        """Returns NONE if offsets of topics without a subscription may be deleted, else the error."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether a member subscribes to the topic, or may do so."""
        ...

    def expiry_base_ms(self, offset: CommittedOffset) -> int | None:
        """Returns the time from which an offset's retention counts; None while it may not expire (KIP-211)."""
        ...

    # Requests of members that use the classic protocol.

    def join(self, join: Join, now_ms: int) -> Effects:
        """Handles JoinGroup; the ticket (the request's future) gets the response, perhaps later."""
        ...

    def sync(self, sync: Sync, now_ms: int) -> Effects:
        """Handles SyncGroup; the ticket (the request's future) gets the response, perhaps later."""
        ...

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> tuple[ErrorCode, Effects]:
        """Handles a classic member's Heartbeat; returns the error or NONE, and the timers to set."""
        ...

    def leave(self, leaving: Sequence[Leaving], now_ms: int) -> tuple[list[ErrorCode], Effects]:
        """Handles LeaveGroup; returns an error or NONE for each member that it names."""
        ...

    # What the shard tells and asks.

    def tombstones(self) -> list[Record]:
        """Returns the tombstones by which the group is removed from the log."""
        ...

    def committed(self, committer: Committer, now_ms: int) -> Effects:
        """Restarts a classic member's session, as it has committed offsets."""
        ...

    def loaded(self, now_ms: int) -> Effects:
        """Starts the sessions of all members, as all records are replayed."""
        ...

    def stored(self, outcome: object, error: ErrorCode, now_ms: int) -> Effects:
        """Returns what to do once records with this `outcome` are replicated, or have failed with `error`."""
        ...

    def timer_expired(self, timer: Hashable, now_ms: int) -> Effects:
        """Returns what to do as a timer of this group, by its key, has run out."""
        ...

    def unloaded(self, error: ErrorCode) -> Effects:
        """Answers all waiting requests with the error, as the group is deleted, replaced, or led by another broker."""
        ...
