"""Faults of leaders that are planted for a simulation to find; each function plants the one that its name tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millrace.addresses import Address
from millrace.errors import ErrorCode
from millrace_broker.handlers import k01_fetch
from millrace_broker.replication import in_sync_replicas, isr_tables
from millrace_broker.replication.delayed_requests import DelayedProduce
from millrace_broker.replication.in_sync_replicas import Election, InSyncReplicas
from millrace_broker.replication.isr_change_sender import IsrChangeSender
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.partition_roles import PartitionRoles
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


# What is committed and acknowledged.


@FAULTS.add
def counts_a_shrink_at_once(patch: pytest.MonkeyPatch) -> None:
    """Moves the high watermark without a replica that the controller may still elect (KIP-497)."""
    patch.setattr(
        InSyncReplicas, "maximal", property(lambda self: self.committed if self.pending is None else self.pending)
    )


@FAULTS.add
def lets_everyone_join(patch: pytest.MonkeyPatch) -> None:
    """Takes any follower in, wherever its log ends."""

    def may_join(self: Any, follower: int, _: Any) -> bool:
        return bool(self.pending is None and follower not in self.committed and follower in self._eligible)

    patch.setattr(InSyncReplicas, "_may_join", may_join)


@FAULTS.add
def needs_one_replica_in_sync(patch: pytest.MonkeyPatch) -> None:
    """Ignores min.insync.replicas."""
    patch.setattr(in_sync_replicas, "effective_min_isr", lambda *_: 1)


@FAULTS.add
def commits_what_the_leader_has(patch: pytest.MonkeyPatch) -> None:
    """Lets the high watermark be the log's end in each new epoch of a leader."""

    def election(*args: Any) -> Any:
        made = Election(*args)
        return made._replace(high_watermark=made.log_end_offset)

    patch.setattr(isr_tables, "Election", election)


@FAULTS.add
def commits_what_a_majority_has(patch: pytest.MonkeyPatch) -> None:
    """Moves the high watermark once two of three replicas have the records, though the third one is in sync."""

    def moves(self: Any, _now_ms: int) -> bool:
        ends = sorted([self._log_end_offset, *(one.log_end_offset for one in self._followers.values())])
        before, self.high_watermark = self.high_watermark, max(self.high_watermark, ends[len(ends) // 2])
        return bool(self.high_watermark > before)

    patch.setattr(InSyncReplicas, "_moves_high_watermark", moves)


@FAULTS.add
def acknowledges_before_the_others_have_it(patch: pytest.MonkeyPatch) -> None:
    """Answers acks=all as acks=1."""
    patch.setattr(Partition, "outcome_of", lambda *_, **__: ErrorCode.NONE)


@FAULTS.add
def acknowledges_at_the_timeout(patch: pytest.MonkeyPatch) -> None:
    """Answers success when the replicas took too long."""
    patch.setattr(DelayedProduce, "expire", DelayedProduce.complete)


# What followers are answered.


@FAULTS.add
def counts_what_was_sent(patch: pytest.MonkeyPatch) -> None:
    """Takes the records that a follower is sent as records that it has."""
    fetch = k01_fetch._Fetch  # noqa: SLF001
    real = fetch._note  # noqa: SLF001

    def note(self: Any, follower: int, partition: Partition, wanted: Any) -> None:
        real(self, follower, partition, wanted._replace(fetch_offset=partition.log.log_end_offset))

    patch.setattr(fetch, "_note", note)


@FAULTS.add
def tells_of_no_divergence(patch: pytest.MonkeyPatch) -> None:
    """Sends records to a follower whose log is another one."""
    patch.setattr(Partition, "diverging_epoch", lambda *_: None)


# How it begins to lead, and ends.


@FAULTS.add
def cuts_when_it_is_elected(patch: pytest.MonkeyPatch) -> None:
    """Cuts all that it does not know to be committed, though it may be."""
    real = ReplicaManager._begin_to_lead  # noqa: SLF001

    def begin_to_lead(self: Any, topic_partition: TopicPartition, *args: Any) -> None:
        log = self._logs.logs().get(topic_partition)
        if log is not None:
            self._logs.truncate_to({topic_partition: min(log.high_watermark, log.log_end_offset)})
        real(self, topic_partition, *args)

    patch.setattr(ReplicaManager, "_begin_to_lead", begin_to_lead)


@FAULTS.add
def does_not_step_down(patch: pytest.MonkeyPatch) -> None:
    """Goes on leading when another broker has been elected."""
    real = PartitionRoles._follow  # noqa: SLF001

    def follow(self: Any, state: Any, *args: Any) -> None:
        if state.topic_partition not in self._replicas.partitions:
            real(self, state, *args)

    patch.setattr(PartitionRoles, "_follow", follow)


# What the controller is asked for.


@FAULTS.add
def proposes_once(patch: pytest.MonkeyPatch) -> None:
    """Does not ask for other in-sync replicas again when no answer comes."""
    real = IsrChangeSender._send  # noqa: SLF001

    async def send(self: Any, changes: Mapping[Any, Any], answered: Any) -> bool:
        is_accepted = await real(self, changes, answered)
        for key, change in changes.items():
            if self._waiting.get(key) is change:
                del self._waiting[key]
        return is_accepted

    patch.setattr(IsrChangeSender, "_send", send)


@FAULTS.add
def asks_its_first_controller_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Proposes in-sync replicas to a broker that has long ceased to be the controller."""
    real = IsrChangeSender._connected  # noqa: SLF001
    first: dict[Any, Address] = {}

    async def connected(self: Any) -> Any:
        find = self._find_controller
        self._find_controller = lambda: first.get(self) or find()
        link = await real(self)
        first.setdefault(self, link.address)
        return link

    patch.setattr(IsrChangeSender, "_connected", connected)
