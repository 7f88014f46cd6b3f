"""Faults of a mirror that copies, planted to be found; each function plants the one that its name tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.client.groups import GroupOffset
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.messages import OFFSET_COMMIT
from millrace_broker.storage import TopicPartition
from millrace_pipelines.mirror import copy
from millrace_pipelines.mirror.copy import Copy, CopyLook
from millrace_pipelines.mirror.offset_map import MappedRuns, Run
from millrace_pipelines.mirror.offset_map_topic import map_records
from millrace_pipelines.mirror.stops import Stop, StopKind
from millrace_pipelines.mirror.transaction import Outcome
from millrace_support.simulation.mirror import copiers
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
def writes_the_map_behind_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """Writes the offset map once the records are committed, and forgets it where it ends before that."""
    real = CopyingInstance._transaction  # noqa: SLF001

    async def send_maps(self: Any, maps: list[NewRecord]) -> None:
        self.later = maps

    async def transaction(self: Any, portions: Any) -> Outcome:
        self.later = []
        outcome = await real(self, portions)
        if outcome is Outcome.COMMITTED and self.later:
            await self._client.produce_plainly(MAP, encode_batch(self.later))
        return outcome

    patch.setattr(CopyingInstance, "_send_maps", send_maps)
    patch.setattr(CopyingInstance, "_transaction", transaction)


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
def goes_on_behind_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    """Takes what was sent for copied, though its transaction was aborted."""
    patch.setattr(Copy, "was_rolled_back", lambda self: self._settle())


@FAULTS.add
def takes_unknown_ends_for_aborts(patch: pytest.MonkeyPatch) -> None:
    """Copies again what may have been committed, without a look."""
    patch.setattr(Copy, "is_unknown", Copy.was_rolled_back)


@FAULTS.add
def sees_no_cut_of_the_source(patch: pytest.MonkeyPatch) -> None:
    """Asks no source where it ends the epoch of the last record that was copied."""
    real = Copy.looked
    patch.setattr(Copy, "looked", lambda self, look: real(self, look._replace(epoch_end=None)))


@FAULTS.add
def copies_on_from_another_topic(patch: pytest.MonkeyPatch) -> None:
    """Takes no notice of the id of the source's topic."""
    real = Copy.looked
    patch.setattr(Copy, "looked", lambda self, look: real(self, look._replace(source_topic_id=None)))


@FAULTS.add
def begins_again_without_progress(patch: pytest.MonkeyPatch) -> None:
    """Copies all once more where its group's offsets are gone."""
    _goes_on(patch, StopKind.FOREIGN)


@FAULTS.add
def passes_over_deleted_offsets(patch: pytest.MonkeyPatch) -> None:
    """Goes on where the source's log begins though nobody has accepted that."""
    _goes_on(patch, StopKind.PURGED)


def _goes_on(patch: pytest.MonkeyPatch, kind: StopKind) -> None:
    """Goes on where the source's log begins in spite of a reason to stop."""
    real = Copy._judged  # noqa: SLF001

    def judged(self: Any, look: CopyLook) -> Any:
        found = real(self, look)
        return look.source_start if isinstance(found, Stop) and found.kind is kind else found

    patch.setattr(Copy, "_judged", judged)


@FAULTS.add
def copies_damaged_batches(patch: pytest.MonkeyPatch) -> None:
    """Looks at no checksum of what it fetches, and gives it one of its own."""
    patch.setattr(copy, "check_crc", lambda *_: None)
