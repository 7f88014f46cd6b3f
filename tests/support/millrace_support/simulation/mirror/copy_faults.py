"""Faults of a mirror that copies, planted to be found; each function plants the one that its name tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.client.groups import GroupOffset
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.messages import OFFSET_COMMIT
from millrace_broker.storage import TopicPartition
from millrace_pipelines.mirror.copy import Copy
from millrace_pipelines.mirror.offset_map import MappedRuns, Run
from millrace_pipelines.mirror.offset_map_topic import map_records
from millrace_support.simulation.mirror import copiers, target_clients
from millrace_support.simulation.mirror.copiers import MAP, CopyingInstance
from millrace_support.simulation.mirror.target_clients import GROUP, OF_GROUPS, TargetClient
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
def commits_progress_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """Commits the progress by itself, before the records are committed."""

    async def send_offsets(self: Any, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        for key, one in offsets.items():
            partition = {
                "partition_index": key.partition,
                "committed_offset": one.offset,
                "committed_metadata": one.metadata,
            }
            fields = {
                "group_id": GROUP,
                "generation_id_or_member_epoch": self.generation,
                "member_id": self._member_id,
                "topics": [{"name": key.topic, "partitions": [partition]}],
            }

            def error_of(answer: Any) -> int:
                return int(answer.topics[0].partitions[0].error_code)

            await self._ask(OF_GROUPS, OFFSET_COMMIT, 7, fields, error_of, patience_s=1)

    patch.setattr(TargetClient, "send_offsets", send_offsets)


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


@FAULTS.add
def reads_progress_that_may_change(patch: pytest.MonkeyPatch) -> None:
    """Does not wait for a transaction that is about to commit another progress."""
    patch.setattr(target_clients, "REQUIRES_STABLE", False)


@FAULTS.add
def goes_on_behind_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    """Takes what was sent for copied, though its transaction was aborted."""
    patch.setattr(Copy, "was_rolled_back", lambda self: self._settle())


@FAULTS.add
def takes_unknown_ends_for_aborts(patch: pytest.MonkeyPatch) -> None:
    """Copies again what may have been committed, without a look."""
    patch.setattr(Copy, "is_unknown", Copy.was_rolled_back)


@FAULTS.add
def keeps_its_partitions_when_it_rejoins(patch: pytest.MonkeyPatch) -> None:
    """Goes on from the progress that it remembers in another generation."""
    real = CopyingInstance._join  # noqa: SLF001

    async def join(self: Any) -> None:
        before = self._copies
        await real(self)
        self._copies = {key: before.get(key, copy) for key, copy in self._copies.items()}

    patch.setattr(CopyingInstance, "_join", join)


@FAULTS.add
def sees_no_cut_of_the_source(patch: pytest.MonkeyPatch) -> None:
    """Asks no source where it ends the epoch of the last record that was copied."""
    real = Copy.looked
    patch.setattr(Copy, "looked", lambda self, look: real(self, look._replace(epoch_end=None)))
