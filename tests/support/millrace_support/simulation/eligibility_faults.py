"""Faults in what decides who may lead after a loss of disks and power, planted for a simulation to find.

Each function plants the one that its name tells, in brokers, which tell of their losses, or in controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.zk import paths
from millrace.zk.eligibility import LossReport, encode_loss
from millrace_broker.cluster.store import Losses
from millrace_broker.controller import elections, eligibility, partition_leaders
from millrace_broker.controller.broker_reports import BrokerReports
from millrace_broker.controller.controller_store import ControllerStore
from millrace_broker.controller.eligibility import BrokerLosses, SeenLosses, awaited
from millrace_broker.replication import in_sync_replicas
from millrace_broker.startup import last_stop
from millrace_support.simulation import simulated_losses
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest


FAULTS = Plants()


# What a broker tells.


@FAULTS.add
def says_nothing_of_an_empty_disk(patch: pytest.MonkeyPatch) -> None:
    """Registers with an empty disk as if it were the one that it had."""
    real = last_stop.losses_since_last_stop
    patch.setattr(simulated_losses, "losses_since_last_stop", lambda *args: real(*args)._replace(has_new_disk=False))


@FAULTS.add
def takes_a_loss_of_power_for_the_end_of_a_process(patch: pytest.MonkeyPatch) -> None:
    """Believes that the kernel has all that was written."""
    patch.setattr(last_stop, "_may_lack_unsynced", lambda *_: False)


@FAULTS.add
def names_its_former_registration_in_a_report(patch: pytest.MonkeyPatch) -> None:
    """Writes a loss down with the registration that it had before, so that it counts for none that follows."""

    def write(session: Any, broker_id: int, losses: Losses) -> None:
        if losses.has_new_disk:
            session.put(paths.new_disks(broker_id), encode_loss(LossReport(0, losses.kept)))
        if losses.has_lost_power:
            session.put(paths.power_losses(broker_id), encode_loss(LossReport(0)))

    patch.setattr(simulated_losses, "write_losses", write)


# What a controller takes from that.


@FAULTS.add
def reads_no_reports_of_empty_disks(patch: pytest.MonkeyPatch) -> None:
    """Takes a broker that is back for one that has what it had, unless it has lost power."""
    patch.setattr(BrokerReports, "new_disks", lambda *_: {})


@FAULTS.add
def reads_no_reports_of_losses_of_power(patch: pytest.MonkeyPatch) -> None:
    """Takes a broker that is back for one that has what it had, unless its disk is empty."""
    patch.setattr(BrokerReports, "power_losses", lambda *_: {})


@FAULTS.add
def takes_all_losses_before_it_began_for_seen(patch: pytest.MonkeyPatch) -> None:
    """Believes a state that the controller before it wrote, which had not heard of a loss."""

    def seen_losses(store: Any) -> SeenLosses:
        return SeenLosses(max((one.epoch for one in store.brokers().values()), default=0))

    patch.setattr(ControllerStore, "seen_losses", seen_losses)


@FAULTS.add
def counts_what_controllers_without_notes_have_seen(patch: pytest.MonkeyPatch) -> None:
    """Counts losses again that controllers of the former release, which keep no notes, have taken into account."""
    real = ControllerStore.seen_losses
    patch.setattr(ControllerStore, "seen_losses", lambda self: real(self)._replace(since=0))


@FAULTS.add
def overlooks_losses_while_there_is_a_leader(patch: pytest.MonkeyPatch) -> None:
    """Asks what brokers have lost only for partitions without a leader, and not for those in sync."""
    real = BrokerLosses.since

    def since(self: Any, key: Any, assignment: Any, state: Any, zxid: int) -> Any:
        return eligibility.NOTHING_LOST if state.leader >= 0 else real(self, key, assignment, state, zxid)

    patch.setattr(BrokerLosses, "since", since)


# Who is eligible, and who is elected.


@FAULTS.add
def keeps_eligible_replicas_when_enough_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    """Goes on to take them for complete, though more is committed without them."""
    real = eligibility.eligibility_after

    def after_that(assignment: Any, before: Any, after: Any, min_isr: Any) -> Any:
        known = before.eligibility
        kept = tuple(one for one in known.eligible if one not in after.isr)
        found = real(assignment, before, after, min_isr)
        return found if found.eligible or not kept else known._replace(eligible=kept)

    patch.setattr(partition_leaders, "eligibility_after", after_that)


@FAULTS.add
def takes_replicas_that_leave_for_eligible_at_the_min_isr(patch: pytest.MonkeyPatch) -> None:
    """Takes the min ISR for one more than it is: those in sync commit without the one that has left."""
    real = in_sync_replicas.effective_min_isr
    patch.setattr(eligibility, "effective_min_isr", lambda *args: real(*args) + 1)


@FAULTS.add
def elects_an_empty_replica_while_others_are_down(patch: pytest.MonkeyPatch) -> None:
    """Does not ask whether all replicas are empty where nobody is in sync or eligible."""
    real = elections._next_best  # noqa: SLF001

    def next_best(assignment: Any, state: Any) -> Any:
        known = state.eligibility
        return real(assignment, state) if awaited(state) or not known.empty else frozenset(assignment.replicas)

    patch.setattr(elections, "_next_best", next_best)
