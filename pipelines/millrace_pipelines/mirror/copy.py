"""What one copied partition does next, decided without clusters: events go in, and its state says what is wanted.

    CHECK ──looked──► BEGIN ──committed──► RUN ──fetched──► portions, sent ──committed──► (the progress moves up)
      ▲  │              ▲                  │ ▲                     └───────rolled back──┐
      │  └─ has progress ┴─────────────────┼─┴──────────────────────────────────────────┘
      └──── an error, a change of the source's leader epoch: once nothing is sent that is not committed
    STOPPED: the partition alone, with a sentence

The progress is the offset of the source that the mirror's group has committed at the target, in the transaction that
has the records below it. It is committed before the first record is sent. So a target without progress has none of
this mirror's records, and one that has records all the same is not touched.

What is passed over, as markers, records of aborted transactions and gaps of compaction, moves the progress, too.

Small batches that lie beside each other in an answer are sent as one, since a batch costs as much as dozens of records.
If the target refuses it, they are sent one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from millrace.client.fetched import FetchedBatch, FetchedData
from millrace.client.groups import GroupOffset
from millrace.client.simple_consumer import EpochEnd
from millrace.errors import MillraceError, OffsetOutOfRangeError, RecordError
from millrace.records.batch import NO_LEADER_EPOCH, NO_OFFSET, BatchHeader, Buffer, check_crc, read_header
from millrace.records.rebatch import SourceRun, merged, producible
from millrace.records.record import decode_batch, encode_records
from millrace_pipelines.mirror.follow import Ahead, GapCheck
from millrace_pipelines.mirror.settings import Accept
from millrace_pipelines.mirror.stops import Mirrored, Stop, damaged, foreign, purged, recreated, refused, truncated

SMALL_RECORDS = 16  # of a batch that is cheaper to write again with others than to send by itself
SMALL_BYTES = 16 << 10
MERGED_BYTES = 128 << 10


class Phase(Enum):
    """The state of a partition."""

    CHECK = "check"
    BEGIN = "begin"
    RUN = "run"
    STOPPED = "stopped"


class Ids(NamedTuple):
    """The ids of a topic at the source and at the target; None for one that has none, or that is not known."""

    source: str | None = None
    target: str | None = None


NO_IDS = Ids()


class Progress(NamedTuple):
    """Up to which offset of which topic of the source all is at the target, and the leader epoch below it."""

    next_offset: int
    ids: Ids = NO_IDS
    leader_epoch: int = NO_LEADER_EPOCH

    @classmethod
    def of(cls, committed: GroupOffset | None) -> Progress | None:
        """Returns what was committed; None for nothing."""
        if committed is None or committed.offset == NO_OFFSET:
            return None
        try:
            told = json.loads(committed.metadata or "{}")
            ids = Ids(told.get("source_topic_id"), told.get("target_topic_id"))
        except (AttributeError, ValueError):
            ids = NO_IDS
        return cls(committed.offset, ids, committed.leader_epoch)

    @property
    def to_commit(self) -> GroupOffset:
        """What the mirror's group commits."""
        ids = {"source_topic_id": self.ids.source, "target_topic_id": self.ids.target}
        return GroupOffset(self.next_offset, json.dumps(ids, separators=(",", ":")), self.leader_epoch)


class CopyLook(NamedTuple):
    """The source's log, the target's, and the progress; `epoch_end` is where the source ends its epoch (KIP-101).

    `source_topic_id` is the id that the topic has now, `source_end` the high watermark there.
    """

    progress: Progress | None
    source_start: int
    target_end: int
    source_topic_id: str | None = None
    epoch_end: EpochEnd | None = None
    source_end: int = NO_OFFSET


class Part(NamedTuple):
    """A batch to send, and the source offsets of its records."""

    batch: Buffer
    runs: tuple[SourceRun, ...]
    record_count: int
    newest_ms: int


class _Ready(NamedTuple):
    """A part with the header of its batch; `is_small` says that it may be merged with others, as it is a whole one."""

    header: BatchHeader
    part: Part
    is_small: bool


class Portion(NamedTuple):
    """What an answer of the source brings: batches, perhaps none, and the progress once they are committed."""

    parts: tuple[Part, ...]
    progress: Progress


@dataclass(slots=True)
class Copy:
    """One copied partition: the loop asks what it wants, and tells it what came of it.

    `ids` are those of the topics that are mirrored. `next_offset` is what is fetched next, `committed` the progress;
    `stop` says why nothing more is done.
    """

    what: Mirrored
    check_gap: GapCheck
    ids: Ids = NO_IDS
    accepted: frozenset[Accept] = frozenset()
    start_offset: int = 0
    phase: Phase = Phase.CHECK
    next_offset: int = 0
    committed: Progress | None = None
    stop: Stop | None = None
    trouble: MillraceError | None = None
    _leader_epoch: int = NO_LEADER_EPOCH
    _outside: int = NO_OFFSET  # what the source was asked for last, and said to be outside of its log
    _ahead: Ahead = field(default_factory=Ahead)
    _joins: bool = False
    _checks_again: bool = False
    _merges: bool = True
    _has_merged: bool = False

    @property
    def wants_look(self) -> bool:
        """Whether both logs and the progress are to be looked at."""
        return self.phase is Phase.CHECK

    @property
    def first_progress(self) -> Progress | None:
        """The progress to commit before the first record is sent; None where the group has one already."""
        return Progress(self.next_offset, self.ids) if self.phase is Phase.BEGIN else None

    @property
    def wants_fetch(self) -> bool:
        """Whether the source is to be asked for what comes from `next_offset` on."""
        return self.phase is Phase.RUN and not self._checks_again

    def looked(self, look: CopyLook) -> None:
        """Takes a look: goes on, looks again later, or stops."""
        found = self._judged(look)
        if isinstance(found, Stop):
            self._stop(found)
        if not isinstance(found, int):
            return
        self.committed, self.next_offset = look.progress, found
        self._leader_epoch, self._joins, self._checks_again = NO_LEADER_EPOCH, True, False
        self.trouble, self._ahead, self._outside = None, Ahead(), NO_OFFSET
        has_progress = look.progress is not None and look.progress[:2] == (found, self.ids)
        self.phase = Phase.RUN if has_progress else Phase.BEGIN

    def fetched(self, answer: FetchedData | MillraceError) -> Portion | None:
        """Takes an answer of the source; returns what it brings. Damage stops the partition behind what is intact."""
        if not self.wants_fetch or (isinstance(answer, FetchedData) and answer.asked_offset != self.next_offset):
            return None  # it was asked for before what was sent last was taken back
        if isinstance(answer, RecordError):
            self._stop(damaged(self.what, answer))
        elif isinstance(answer, MillraceError):
            self._outside = self.next_offset if isinstance(answer, OffsetOutOfRangeError) else NO_OFFSET
            self.failed(answer)
        else:
            return self._portion(answer)
        return None

    def was_committed(self, progress: Progress) -> None:
        """Takes that a transaction with this progress is committed."""
        self.committed = progress
        if self.phase is Phase.BEGIN:
            self.phase = Phase.RUN
        self._settle()

    def was_rolled_back(self) -> None:
        """Takes that the transaction with all that was not committed is aborted."""
        if self.phase is Phase.RUN and self.committed is not None:
            self.next_offset, self._joins = self.committed.next_offset, True
            self._leader_epoch = NO_LEADER_EPOCH
        self._settle()

    def was_refused(self, error: MillraceError) -> None:
        """Takes that the target will never take a batch of this partition; merged ones are tried one by one."""
        if self._merges and self._has_merged:
            self._merges = False
        else:
            self._stop(refused(self.what, error))

    def is_unknown(self) -> None:
        """Takes that nobody knows whether the last transaction counts: the progress is read again."""
        if self.phase is not Phase.STOPPED:
            self.phase = Phase.CHECK

    def failed(self, error: MillraceError | None) -> None:
        """Takes an error that may pass: all is looked at again, once nothing is sent that is not committed."""
        self.trouble, self._checks_again = error, True
        self._settle()

    def _settle(self) -> None:
        is_clean = self.committed is None or self.next_offset == self.committed.next_offset
        if self._checks_again and is_clean and self.phase is not Phase.STOPPED:
            self._checks_again, self.phase = False, Phase.CHECK

    def _judged(self, look: CopyLook) -> int | Stop | None:
        """Returns the offset to go on from, why to stop, or None where the keeper of topics has to decide first."""
        progress = look.progress
        if _differ(self.ids.source, look.source_topic_id):
            return None if Accept.RECREATED_TOPIC in self.accepted else recreated(self.what)
        if progress is None or _differ(self.ids.target, progress.ids.target):
            return foreign(self.what) if look.target_end else max(look.source_start, self.start_offset)
        if _differ(self.ids.source, progress.ids.source):  # the topic is another one now, which was accepted
            return look.source_start
        if (end := self._cut_at(look, progress)) is not None:
            stop = truncated(self.what, progress.next_offset, is_copied=True)
            return self._unless_accepted(stop, max(end, look.source_start))
        if look.source_start > progress.next_offset:
            return self._unless_accepted(purged(self.what, progress.next_offset, look.source_start), look.source_start)
        return progress.next_offset

    def _cut_at(self, look: CopyLook, progress: Progress) -> int | None:
        """Returns where the source was cut below the progress; None where it was not, or does not tell yet.

        Its leader epoch tells it. Before the first record there is none: then it is the source's second answer.
        """
        offset = progress.next_offset
        if look.epoch_end is not None and NO_OFFSET < look.epoch_end.end_offset < offset:
            return look.epoch_end.end_offset
        is_outside = progress.leader_epoch == NO_LEADER_EPOCH and offset == self._outside
        return look.source_end if is_outside and look.source_start <= offset > look.source_end else None

    def _unless_accepted(self, stop: Stop, offset: int) -> int | Stop:
        return offset if stop.option in self.accepted else stop

    def _portion(self, fetched: FetchedData) -> Portion | None:
        """Returns the intact batches of an answer, as far as they are of one leader epoch after what was known."""
        found: list[_Ready] = []
        progress = Progress(self.next_offset, self.ids, self._leader_epoch)
        try:
            for index, batch in enumerate(fetched.batches(goes_on=not self._joins)):
                if not index and NO_LEADER_EPOCH != self._leader_epoch != batch.header.partition_leader_epoch:
                    self.failed(None)
                    return None
                if self._ahead.has(batch.header, fetched.high_watermark):
                    break
                self._check(batch)
                part = None if batch.is_passed_over else _part(batch, self.next_offset)
                found += [] if part is None else [part]
                self._leader_epoch, self._joins = batch.header.partition_leader_epoch, False
                self.next_offset = batch.header.next_offset
                progress = Progress(self.next_offset, self.ids, self._leader_epoch)
        except RecordError as error:
            self._stop(damaged(self.what, error))
        except MillraceError as error:
            self.failed(error)
        if progress.next_offset <= fetched.asked_offset:
            return None
        return Portion(tuple(self._parts(found)), progress)

    def _parts(self, found: list[_Ready]) -> Iterator[Part]:
        """Yields what to send: small batches merged."""
        for several in _neighbours(found) if self._merges else ([one] for one in found):
            part = _merged(several) if len(several) > 1 else None
            self._has_merged |= part is not None
            yield from (one.part for one in several) if part is None else (part,)

    def _check(self, batch: FetchedBatch) -> None:
        """Raises RecordError for a batch that is damaged, or offsets that are missing before it."""
        if batch.absent is not None and not self._joins:
            self.check_gap(self.what, batch.absent)
        check_crc(batch.data, 0, batch.header)

    def _stop(self, stop: Stop) -> None:
        self.stop = stop
        self.phase = Phase.STOPPED


def _differ(one: str | None, other: str | None) -> bool:
    """Returns whether two ids are known to be those of different topics."""
    return one is not None and other is not None and one != other


def _neighbours(found: list[_Ready]) -> Iterator[list[_Ready]]:
    """Yields batches in their order: small ones of one codec together, up to a size, others by themselves."""
    several: list[_Ready] = []
    size_bytes = 0
    for one in found:
        size_bytes += len(one.part.batch)
        joins = several and several[0].is_small and one.is_small and size_bytes <= MERGED_BYTES
        if joins and several[0].header.codec_id == one.header.codec_id:
            several.append(one)
            continue
        if several:
            yield several
        several, size_bytes = [one], len(one.part.batch)
    if several:
        yield several


def _merged(several: list[_Ready]) -> Part | None:
    """Returns one part for several; None where they are to be sent as they are."""
    made = merged([(one.header, memoryview(one.part.batch)) for one in several])
    if made is None:
        return None
    newest_ms = max(one.part.newest_ms for one in several)
    return Part(made.batch, made.runs, sum(one.part.record_count for one in several), newest_ms)


def _part(batch: FetchedBatch, from_offset: int) -> _Ready | None:
    """Returns what to send of a batch: its records from an offset on; None where there are none."""
    header, data = batch.header, batch.data
    if header.base_offset < from_offset:
        data = memoryview(
            encode_records(header, [one for one in decode_batch(header, data) if one.offset >= from_offset])
        )
        header = read_header(data)
    made = producible(header, data)
    if made is None:
        return None
    part = Part(made.batch, made.runs, sum(run.count for run in made.runs), header.max_timestamp)
    is_small = made.batch is data and part.record_count <= SMALL_RECORDS and len(data) <= SMALL_BYTES
    return _Ready(header, part, is_small)
