"""Faults of controllers that are planted for a simulation to find; each function plants the one that its name tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millrace.errors import ErrorCode
from millrace_broker.controller import active_controller, elections, partition_leaders
from millrace_broker.controller.active_controller import ActiveController
from millrace_broker.controller.cluster_state import LeaderAndIsr
from millrace_broker.controller.elections import elect_after_failure, judge
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


# Elections.


@FAULTS.add
def elects_anyone(patch: pytest.MonkeyPatch) -> None:
    """Elects replicas that are not in sync."""

    def elect(*args: Any, **_: Any) -> LeaderAndIsr | None:
        return elect_after_failure(*args, is_unclean_allowed=True)

    patch.setattr(partition_leaders, "elect_after_failure", elect)


@FAULTS.add
def elects_the_first_replica(patch: pytest.MonkeyPatch) -> None:
    """Elects the first replica that is online, in sync or not."""
    patch.setattr(elections, "_first", lambda replicas, _: next(iter(replicas), None))


@FAULTS.add
def elects_in_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    """Changes leaders without another leader epoch."""
    patch.setattr(elections, "_next", lambda state, leader, isr: replace(state, leader=leader, isr=isr))


# What it knows of brokers.


@FAULTS.add
def overlooks_restarts(patch: pytest.MonkeyPatch) -> None:
    """Does not look at the id of a registration: a broker is back with an empty disk, and in sync."""
    real = ActiveController.read_brokers

    def read_brokers(self: Any) -> None:
        found, known = self._store.brokers(), self.cluster.brokers
        for broker in found.keys() & known.keys():
            known[broker] = replace(known[broker], epoch=found[broker].epoch)
        real(self)

    patch.setattr(ActiveController, "read_brokers", read_brokers)


@FAULTS.add
def overlooks_deaths(patch: pytest.MonkeyPatch) -> None:
    """Elects no other leaders when brokers are gone."""
    patch.setattr(ActiveController, "_remove_brokers", lambda *_: None)


# What it answers leaders.


@FAULTS.add
def takes_proposals_of_former_leaders(patch: pytest.MonkeyPatch) -> None:
    """Changes the in-sync replicas as a leader of a former epoch asks."""

    def agree(cluster: Any, key: Any, proposal: Any) -> Any:
        return replace(cluster.leaders[key], isr=tuple(proposal.isr))

    patch.setattr(active_controller, "judge", agree)


@FAULTS.add
def confirms_what_it_has_not_written(patch: pytest.MonkeyPatch) -> None:
    """Answers that other replicas are in sync, and elects from those that were before."""

    def altered(self: Any, proposals: Mapping[Any, Any]) -> Mapping[Any, LeaderAndIsr | ErrorCode]:
        states = {key: judge(self.cluster, key, proposal) for key, proposal in proposals.items()}
        return {
            key: replace(state, partition_epoch=state.partition_epoch + 1) if isinstance(state, LeaderAndIsr) else state
            for key, state in states.items()
        }

    patch.setattr(ActiveController, "_altered", altered)
