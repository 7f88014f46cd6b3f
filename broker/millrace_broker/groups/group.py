"""What every type of group answers to. Deletion, listing and offset commits ask no more than this.

Checks return the protocol's error code, NONE where nothing is in the way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from millrace.errors import ErrorCode
from millrace_broker.groups.classic.events import Join, Leaving, Sync
from millrace_broker.groups.effects import Effects
from millrace_broker.groups.records import CommittedOffset, Record


class Committer(NamedTuple):
    """Who commits, and by which version of OffsetCommit, or of TxnOffsetCommit in a transaction.

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
        """`classic`, or what KIP-848's types filter calls it."""
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
        """How many members it has."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def check_commit(self, committer: Committer) -> ErrorCode:
        """Whether offsets may be committed."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether offsets may be fetched (KIP-848 gives a member and its epoch)."""
        ...

    def check_delete(self) -> ErrorCode:
        """Whether the group may be deleted."""
        ...

    def check_delete_offsets(self) -> ErrorCode:
        """Whether offsets of topics that nobody subscribes may be deleted."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes the topic, or may."""
        ...

    def expiry_base_ms(self, offset: CommittedOffset) -> int | None:
        """From when on retention counts for an offset; None while it may not expire (KIP-211)."""
        ...

    # Members that use the classic protocol; a group of another type may have some while it migrates (KIP-848).

    def join(self, join: Join, now_ms: int) -> Effects:
        """JoinGroup."""
        ...

    def sync(self, sync: Sync, now_ms: int) -> Effects:
        """SyncGroup."""
        ...

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> tuple[ErrorCode, Effects]:
        """Heartbeat."""
        ...

    def leave(self, leaving: Sequence[Leaving], now_ms: int) -> tuple[list[ErrorCode], Effects]:
        """LeaveGroup: an error for each member that it names."""
        ...

    # What the shard asks.

    def tombstones(self) -> list[Record]:
        """The records that remove it."""
        ...

    def committed(self, committer: Committer, now_ms: int) -> Effects:
        """A member has committed offsets, which keeps its session alive."""
        ...

    def loaded(self, now_ms: int) -> Effects:
        """Every record has been replayed; sessions begin anew."""
        ...

    def stored(self, outcome: Any, error: ErrorCode, now_ms: int) -> Effects:
        """A `Store` of this group has ended."""
        ...

    def timer_expired(self, timer: Hashable, now_ms: int) -> Effects:
        """A timer of this group has run out."""
        ...

    def unloaded(self, error: ErrorCode) -> Effects:
        """The group moves to another broker, or is gone: answer everyone who waits."""
        ...
