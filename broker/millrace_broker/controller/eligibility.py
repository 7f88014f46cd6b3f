"""Who may lead a partition beside its in-sync replicas (KIP-966), and who must not, as pure functions.

While fewer replicas are in sync than the min ISR, the high watermark stands still. So a replica that left when the ISR
fell below the min ISR, or afterwards, goes on to have every committed record: it is **eligible**.

| what happens to a replica in the ISR, or to an eligible one | what it is then |
|---|---|
| it leaves the ISR, which has fewer than the min ISR | eligible |
| it leaves the ISR, which has the min ISR, or whose leader's min ISR is not known | nothing: it may lack records |
| the ISR has the min ISR again, or another than these is elected | nothing: the high watermark moves on |
| it comes back from a stop, or after its process was killed | what it was |
| its machine has lost power | doubtful: it may have lost what was committed last |
| its disk is empty | empty: it has nothing |
| its broker does not tell of losses, and comes back | in the ISR what it was, as in Apache Kafka; else nothing |

A doubtful replica leads only where none is in sync and none is eligible, be they alive or not. An empty one leads only
where every replica of the partition is empty: then nothing is left that could be lost. Both are forgotten once there is
a leader. For a partition with one replica this means that it leads after a loss of power or of its disk, too.

An operator may lower `min.insync.replicas` while few are in sync, and the leader then commits without the eligible
ones. So they count only as long as no configuration that decides the min ISR was written since; it does not matter what
was changed in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from millrace.leader_states import NO_LEADER
from millrace.zk.codec import Partition
from millrace.zk.eligibility import NO_ONE, Eligibility
from millrace_broker.controller.cluster_state import Assignment, LeaderAndIsr, LiveBroker
from millrace_broker.replication.in_sync_replicas import effective_min_isr

NOBODY: frozenset[int] = frozenset()


class MinIsr(NamedTuple):
    """The `min.insync.replicas` that a leader obeys, and the configurations it comes from (`Eligibility.configs`)."""

    value: int
    configs: Mapping[str, int]


class LostReplicas(NamedTuple):
    """The replicas of a partition that have lost records since its state was written.

    Attributes:
        emptied: Their disks are new.
        powerless: Their machines have lost power.
        unsure: They are eligible, and may have lost something, as far as their brokers tell.
    """

    emptied: frozenset[int] = NOBODY
    powerless: frozenset[int] = NOBODY
    unsure: frozenset[int] = NOBODY


NOTHING_LOST = LostReplicas()


class Loss(NamedTuple):
    """A broker's loss: the registration (broker epoch) that followed on it, and the partitions that were kept.

    While the broker has not registered yet, it is the transaction that wrote the report. So it is in the report of a
    former release, too, which does not name the registration.
    """

    broker_epoch: int
    kept: frozenset[Partition] = frozenset()
    is_registration: bool = True


class SeenLosses(NamedTuple):
    """Up to which transactions controllers have taken into account what brokers have lost.

    Attributes:
        since: Until then they have not kept it, and elected by their own rules.
        epochs: The last registration of each broker that one has seen since then.
    """

    since: int
    epochs: Mapping[int, int] = {}

    def until(self, broker: int) -> int:
        """Returns the transaction up to which all that this broker has lost was taken into account."""
        return max(self.since, self.epochs.get(broker, self.since))


NOTHING_SEEN = SeenLosses(0)


class BrokerLosses(NamedTuple):
    """Holds the live brokers, what each has lost last (a disk, or power), by its id, and what controllers have seen."""

    brokers: Mapping[int, LiveBroker]
    new_disks: Mapping[int, Loss]
    power_losses: Mapping[int, Loss]
    seen: SeenLosses = NOTHING_SEEN

    def concern(self, broker: int) -> bool:
        """Returns whether a replica on this broker may have lost records at some time."""
        return broker in self.new_disks or broker in self.power_losses or self._is_silent(broker)

    def seen_now(self) -> dict[int, int]:
        """Returns the `epochs` of `seen` after an election that has followed on all of these losses.

        A report may already name a registration that the controller has not heard of. That one is not seen yet: until
        then, states may be written in which its loss is overlooked.
        """
        return {**self.seen.epochs, **{one: broker.epoch for one, broker in self.brokers.items()}}

    def since(self, key: Partition, assignment: Assignment, state: LeaderAndIsr, zxid: int) -> LostReplicas:
        """Returns which replicas of a partition have lost records since the transaction `zxid` wrote its state.

        A loss in the present registration of a broker may have been overlooked when others wrote the state, unless an
        election that is noted has followed on it. One that is in sync was taken into the ISR for what it had after the
        loss (KIP-903), but an eligible one was not; and nor was one in a registration that no controller has seen,
        though the state may be newer.
        """
        emptied = frozenset(
            one
            for one in assignment.replicas
            if (loss := self.new_disks.get(one)) and self._counts(one, loss, zxid) and key not in loss.kept
        )
        held = {*state.isr, *state.eligibility.eligible}
        powerless = frozenset(
            one for one in held if (loss := self.power_losses.get(one)) and self._counts(one, loss, zxid)
        )
        eligible = state.eligibility.eligible
        unsure = frozenset(one for one in eligible if self._is_silent(one) or self._may_have_lost_now(one, key))
        if state.leader != NO_LEADER and held.isdisjoint(emptied | powerless):
            emptied = NOBODY
        return LostReplicas(emptied, powerless, unsure)

    def _counts(self, broker: int, loss: Loss, zxid: int) -> bool:
        """Returns whether a replica has lost something since it was in the ISR of the state of this transaction."""
        return loss.broker_epoch > zxid or self._is_unseen(broker, loss)

    def _is_unseen(self, broker: int, loss: Loss) -> bool:
        epoch, seen = self.brokers[broker].epoch, self.seen.until(broker)
        return seen < epoch and (seen if loss.is_registration else epoch - 1) < loss.broker_epoch

    def _is_silent(self, broker: int) -> bool:
        """Returns whether a broker is live and does not tell what it has lost: Apache Kafka's, or a former release."""
        return broker in self.brokers and self.brokers[broker].min_insync_replicas is None

    def _may_have_lost_now(self, broker: int, key: Partition) -> bool:
        """Returns whether a live broker has lost a replica as it registered, and no election is noted since then."""
        if broker not in self.brokers or self.seen.epochs.get(broker, -1) >= self.brokers[broker].epoch:
            return False
        losses = (self.new_disks.get(broker), self.power_losses.get(broker))
        return any(
            one is not None and one.broker_epoch == self.brokers[broker].epoch and key not in one.kept for one in losses
        )


def without_lost(state: LeaderAndIsr, lost: LostReplicas) -> LeaderAndIsr:
    """Returns the state without the replicas in the ISR, and the eligible ones, that have lost records."""
    gone, known = lost.emptied | lost.powerless, state.eligibility
    doubtful = {*known.doubtful, *(lost.powerless & {*state.isr, *known.eligible})} - lost.emptied
    return replace(
        state,
        isr=tuple(one for one in state.isr if one not in gone),
        eligibility=known._replace(
            eligible=tuple(one for one in known.eligible if one not in gone | lost.unsure),
            doubtful=tuple(sorted(doubtful)),
            empty=tuple(sorted({*known.empty} | lost.emptied)),
        ),
    )


def without_eligible(state: LeaderAndIsr) -> LeaderAndIsr:
    """Returns the state without its eligible replicas, which is what it means where a configuration has changed."""
    return replace(state, eligibility=state.eligibility._replace(eligible=(), configs={}))


def may_have_eligible(before: LeaderAndIsr, after: LeaderAndIsr) -> bool:
    """Returns whether the min ISR decides who is eligible in the state `after` that follows `before`."""
    return after.leader != NO_LEADER and bool(_holders(before, after).difference(after.isr))


def eligibility_after(
    assignment: Assignment, before: LeaderAndIsr, after: LeaderAndIsr, min_isr: MinIsr | None
) -> Eligibility:
    """Returns who is eligible, doubtful and empty in the state `after`, which an election or a leader wants to follow.

    `after` has the eligibility of `before`, apart from what was lost; `min_isr` is that of its leader.
    """
    known = after.eligibility
    if after.leader == NO_LEADER:  # nothing is committed: those who had all of it, have it
        return known._replace(eligible=tuple(one for one in known.eligible if one in assignment.replicas))
    holders = _holders(before, after)
    if min_isr is None or after.leader not in holders:
        return NO_ONE
    if len(after.isr) >= effective_min_isr(min_isr.value, len(assignment.replicas)):
        return NO_ONE
    left = tuple(one for one in assignment.replicas if one in holders.difference(after.isr))
    return Eligibility(eligible=left, configs=min_isr.configs) if left else NO_ONE


def _holders(before: LeaderAndIsr, after: LeaderAndIsr) -> set[int]:
    """Returns the replicas that have every record which was committed before the state `after`."""
    known = after.eligibility
    return {*before.isr, *known.eligible}.difference(known.doubtful, known.empty)


def awaited(state: LeaderAndIsr) -> tuple[int, ...]:
    """Returns the replicas that a partition without a leader waits for: each of them has every committed record."""
    return (*state.isr, *(one for one in state.eligibility.eligible if one not in state.isr))
