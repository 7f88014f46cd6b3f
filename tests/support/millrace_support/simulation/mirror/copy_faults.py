"""Faults of a mirror that copies, planted to be found; each function plants the one that its name tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.records.record import NewRecord, encode_batch
from millrace_pipelines.mirror.copy import Copy
from millrace_pipelines.mirror.offset_map import MappedRuns, Run
from millrace_pipelines.mirror.offset_map_topic import map_records
from millrace_support.simulation.mirror import copiers
from millrace_support.simulation.mirror.copiers import MAP, CopyingInstance
from millrace_support.simulation.mirror.target_clients import TargetClient
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


@FAULTS.add
def copies_aborted_records(patch: pytest.MonkeyPatch) -> None:
    """Passes over no record of a transaction that was aborted."""
    real = Copy.fetched

    def fetched(self: Any, answer: Any) -> Any:
        return real(self, answer._replace(aborted=()) if isinstance(answer, FetchedData) else answer)

    patch.setattr(Copy, "fetched", fetched)


@FAULTS.add
def copies_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """Reads what is not committed, and may never be."""
    patch.setattr(copiers, "READS_COMMITTED", IsolationLevel.READ_UNCOMMITTED)


@FAULTS.add
def commits_progress_as_anybody(patch: pytest.MonkeyPatch) -> None:
    """Commits the progress without the generation, so that a former owner may."""
    patch.setattr(TargetClient, "_member_fields", lambda _: {"generation_id": -1, "member_id": ""})


@FAULTS.add
def writes_the_map_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """Writes the offset map as it sends the records, whatever becomes of these."""

    async def send_maps(self: Any, maps: list[NewRecord]) -> None:
        await self._client.produce_plainly(MAP, encode_batch(maps))

    patch.setattr(CopyingInstance, "_send_maps", send_maps)


@FAULTS.add
def maps_over_gaps(patch: pytest.MonkeyPatch) -> None:
    """Makes one run of all that a transaction has, as if no offset were missing."""

    def mapped_as_one(mirror: str, topic: str, partition: int, mapped: MappedRuns) -> Any:
        first = mapped.runs[0]
        one = Run(first.source, first.target, sum(run.length for run in mapped.runs))
        return map_records(mirror, topic, partition, MappedRuns(max(mapped.next_source, one.source_end), [one]))

    patch.setattr(copiers, "map_records", mapped_as_one)
