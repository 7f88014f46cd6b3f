"""Faults of healing that are planted for a simulation to find; each function plants the one that its name tells."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millrace_broker.cluster import loss_reports
from millrace_broker.controller import elections, partition_leaders
from millrace_broker.replication import range_fetch
from millrace_broker.replication.healer import _LogHealing
from millrace_broker.replication.range_fetch import Taken
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_broker.storage.segments.batch_epochs import EpochComparison
from millrace_support.simulation import simulated_healing
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


# What the healer takes.


@FAULTS.add
def heals_with_what_comes_next(patch: pytest.MonkeyPatch) -> None:
    """Takes batches behind the missing ones for these, and leaves a gap."""
    real = range_fetch._check_fits  # noqa: SLF001

    def check_fits(batches: Any, position: int, header: Any, missing: Any) -> None:
        real(batches, position, header, missing._replace(may_leave_out=True))

    patch.setattr(range_fetch, "_check_fits", check_fits)
    patch.setattr(range_fetch, "taken", _taken_up_to_the_end(range_fetch.taken))


def _taken_up_to_the_end(real: Any) -> Any:
    def taken(fetched: Any, missing: Any) -> Taken:
        found: Taken = real(fetched, missing)
        return found._replace(next_offset=missing.end_offset)

    return taken


@FAULTS.add
def waits_for_what_others_have_compacted(patch: pytest.MonkeyPatch) -> None:
    """Copies no compacted log where it, or the other replicas, have removed records behind what is missing."""

    async def copy_compacted(*_: Any) -> None:
        pass

    patch.setattr(_LogHealing, "_copy_compacted", copy_compacted)


# What it puts in place.


@FAULTS.add
def overlooks_rotten_leader_epochs(patch: pytest.MonkeyPatch) -> None:
    """Compares no batch's leader epoch with those of the log."""
    patch.setattr(EpochComparison, "note", lambda *_: None)


@FAULTS.add
def heals_with_the_first_batch(patch: pytest.MonkeyPatch) -> None:
    """Takes a range for whole once one batch of it is there."""

    async def fill(self: Any, new: Any, missing: Any, brokers: Any = (), **_: Any) -> int:
        found = await self._next_batches(missing, brokers, 1)
        if found is None:
            return int(missing.next_offset)
        await asyncio.to_thread(new.put, found.batches)
        return int(missing.end_offset)

    patch.setattr(_LogHealing, "_fill", fill)


@FAULTS.add
def cuts_a_damaged_end_that_its_leader_lacks(patch: pytest.MonkeyPatch) -> None:
    """Cuts off what is damaged at a log's end without a look at what the leader has, as a leader, too."""

    async def cut_damaged_end(self: Any) -> bool:
        log = self._log
        at_end = [one.start_offset for _, one in log.damage if one.end_offset >= log.log_end_offset]
        if at_end:
            await self._held(lambda: self._logs.truncate_to({log.topic_partition: min(at_end)}))
        return bool(at_end)

    patch.setattr(_LogHealing, "_cut_damaged_end", cut_damaged_end)


# What becomes of damage that nobody has healed yet.


@FAULTS.add
def reports_no_end_of_damage(patch: pytest.MonkeyPatch) -> None:
    """Does not tell the controller that all damage of a broker has healed."""
    real = loss_reports.write_damage

    def write_damage(session: Any, broker_id: int, partitions: Any) -> None:
        if partitions:
            real(session, broker_id, partitions)

    patch.setattr(simulated_healing, "write_damage", write_damage)


@FAULTS.add
def elects_no_damaged_replica(patch: pytest.MonkeyPatch) -> None:
    """Waits for a damaged replica to heal, though nobody else may lead."""
    real = elections.sound_first

    def sound_first(assignment: Any, damaged: Any) -> Any:
        found = real(assignment, damaged)
        return replace(found, replicas=tuple(one for one in found.replicas if one not in damaged))

    patch.setattr(partition_leaders, "sound_first", sound_first)


@FAULTS.add
def knows_no_epochs_without_their_file(patch: pytest.MonkeyPatch) -> None:
    """Does not look into the batches for the leader epochs of a log whose file of them is gone."""
    patch.setattr(LeaderEpochs, "begin_at", lambda self, offset, _: self.raise_start(offset))
