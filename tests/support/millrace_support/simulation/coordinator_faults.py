"""Faults of group coordinators that are planted for a simulation to find; each function plants the one its name tells.

One lies in the purgatory, in which all that waits for replicas is held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millrace.config import MAX_INT
from millrace.errors import ErrorCode
from millrace.wire.encoder import contents
from millrace_broker.groups import shard
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.classic.facts import GroupFacts
from millrace_broker.groups.consumer import change
from millrace_broker.groups.consumer.change import reconcile
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroup
from millrace_broker.groups.consumer.state import ConsumerGroupFacts
from millrace_broker.replication import shards
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica import Isolation
from millrace_broker.replication.shards import LedShards
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


# What waits for replicas.


@FAULTS.add
def completes_before_it_releases(patch: pytest.MonkeyPatch) -> None:
    """Completes an operation that is still held: where that appends to the same partition, it is completed again."""

    def check(self: Any, key: Any) -> None:
        for operation in tuple(self._watchers.get(key, {}).values()):
            if id(operation) in self._held and operation.is_ready(key):
                operation.complete()
                self.release(self._held[id(operation)].operation)

    patch.setattr(Purgatory, "check", check)


@FAULTS.add
def waits_for_no_replica(patch: pytest.MonkeyPatch) -> None:
    """Tells a group at once that its records are replicated."""

    def when_replicated(*args: Any, **_: Any) -> None:
        then: Callable[[ErrorCode], None] = args[-1]
        then(ErrorCode.NONE)

    patch.setattr(shard, "when_replicated", when_replicated)


# How it begins to coordinate, and ends.


@FAULTS.add
def loads_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    """Reads its partition up to the high watermark, which lags behind at an election."""

    async def read_to_end(replicas: Any, topic_partition: Any, _: int, take_in: Any, *__: Any) -> int:
        partition = replicas.partition(topic_partition)
        offset, end = partition.log.log_start_offset, partition.high_watermark
        if offset < end:
            read = partition.read(offset, MAX_INT, at_least_one=True, isolation=Isolation.READ_UNCOMMITTED)
            take_in(bytes(contents(read.records)))
        return int(end)

    patch.setattr(shards, "read_to_end", read_to_end)


@FAULTS.add
def acts_upon_what_may_be_lost(patch: pytest.MonkeyPatch) -> None:
    """Serves transactions by all that a new leader has, though the next one may not have it."""

    async def replicated(*_: Any) -> ErrorCode:
        return ErrorCode.NONE

    patch.setattr(LedShards, "_replicated", replicated)


@FAULTS.add
def goes_on_coordinating(patch: pytest.MonkeyPatch) -> None:
    """Keeps the groups of a partition that it leads no longer, and serves them as it knew them when it leads again."""
    patch.setattr(LedShards, "resigned", lambda *_: None)


@FAULTS.add
def leaves_requests_without_answers(patch: pytest.MonkeyPatch) -> None:
    """Forgets who waits when another broker coordinates."""
    patch.setattr(ClassicGroup, "unloaded", lambda *_: [])
    patch.setattr(ConsumerGroup, "unloaded", lambda *_: [])


# What members may do.


@FAULTS.add
def takes_commits_of_anyone(patch: pytest.MonkeyPatch) -> None:
    """Checks neither members nor generations of those that commit."""
    patch.setattr(GroupFacts, "check_commit", lambda *_: ErrorCode.NONE)
    patch.setattr(ConsumerGroupFacts, "check_commit", lambda *_: ErrorCode.NONE)


@FAULTS.add
def gives_what_others_own(patch: pytest.MonkeyPatch) -> None:
    """Gives a member all of its target at once, also what its former owner has not given back."""

    def reconciled(current: Any, target_epoch: int, target: Any, _: Any, owned: Any) -> Any:
        return reconcile(current, target_epoch, target, lambda _: False, owned)

    patch.setattr(change, "reconcile", reconciled)
