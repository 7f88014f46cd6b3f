"""What one followed partition does next, decided without clusters: events go in, and its state says what is wanted.

    CHECK ──looked──► RUN ──fetched──► pieces ──appended──► (the target's end moves up)
      ▲  └──────┐      │ an error, a change of the source's leader epoch, an end that is not the expected one
      └─────────┼──────┘
                └► STOPPED: the partition alone, with a sentence

The target's log end offset is the progress; nothing else is kept. Each piece says at which end it is appended, and the
target takes it there or not at all. So what was sent twice, or by two instances, is in the log once.

CHECK compares the last batch of the target by content with the source's at the same offset (`same_records`). It is made
at the target's high watermark, and the first append after it succeeds only if that is the log's end, too. Where
retention has emptied the target there is no batch to compare; a source that has no offset there was cut. Where the
source has deleted all that was mirrored, nothing is compared either, and a target whose last batch ends its mirroring
takes no more: a switch-over has ended this partition, and goes on with others. RUN takes
what the source serves: whole batches below its high watermark, whose offsets rise without a gap that compaction does
not explain. A batch is never opened; its CRC is checked by the target.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

from millrace.client.fetched import FetchedBatch, FetchedData
from millrace.errors import CorruptRecordError, MillraceError, OffsetOutOfRangeError, RecordError
from millrace.records.batch import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, BatchHeader, check_crc, walk
from millrace.records.control import decode_mirror_end, is_mirror_end
from millrace.records.intervals import Interval
from millrace_pipelines.mirror.same_records import Sameness, compared
from millrace_pipelines.mirror.settings import Accept
from millrace_pipelines.mirror.stops import (
    Mirrored,
    Stop,
    damaged,
    ended,
    is_refusal,
    purged,
    recreated,
    refused,
    truncated,
)

MOST_PIECES = 2  # that are fetched and not yet appended

GapCheck = Callable[[Mirrored, Interval], None]
"""Raises MissingOffsetsError for absent offsets that compaction does not explain, another error where none can say."""


class Phase(Enum):
    """The state of a partition."""

    CHECK = "check"
    RUN = "run"
    STOPPED = "stopped"


class Look(NamedTuple):
    """Both logs as they are now; the comparison's two answers are None where a log lacks the offset.

    The target's end is its high watermark, and `at` is the offset below it, at which both were fetched. `topic_id` is
    that of the target's topic.
    """

    target_start: int
    target_end: int
    source_start: int
    ours: FetchedData | None = None
    theirs: FetchedData | None = None
    is_compacted: bool = False
    is_recreated: bool = False
    topic_id: str | None = None

    @property
    def at(self) -> int:
        """The offset of the target's last committed record."""
        return self.target_end - 1


class Piece(NamedTuple):
    """Batches to append at the target's log end `end_offset`, and what they amount to.

    A piece with `log_start_offset` has no batches: it has an empty log begin there, as nothing else may come for long.
    """

    end_offset: int
    records: memoryview
    next_offset: int
    record_count: int
    newest_ms: int
    log_start_offset: int = NO_OFFSET


@dataclass(slots=True)
class Ahead:
    """Finds batches that an answer has although they end above the high watermark that it names.

    Apache Kafka notes the high watermark before it reads. What is committed in between is asked for again: no later
    answer has an older watermark. A batch above that one, too, has damaged offsets, which no CRC covers.
    """

    _base_offset: int = NO_OFFSET

    def has(self, header: BatchHeader, high_watermark: int) -> bool:
        """Returns whether to ask for a batch again; raises CorruptRecordError where that has been done."""
        if header.next_offset <= high_watermark:
            return False
        if header.base_offset == self._base_offset:
            end = header.next_offset
            raise CorruptRecordError(f"a batch says that it ends at offset {end}, the log ends at {high_watermark}")
        self._base_offset = header.base_offset
        return True


@dataclass(slots=True)
class Follow:
    """One followed partition: the loop asks what it wants, and tells it what came of it.

    `start_offset` is the first one to mirror into an empty log; `next_offset` is what is fetched next, `mirrored_end`
    the offset below which all is at the target, or is given up; `trouble` is the last error that may pass, `stop` why
    nothing more is done.
    """

    what: Mirrored
    check_gap: GapCheck
    accepted: frozenset[Accept] = frozenset()
    start_offset: int = 0
    phase: Phase = Phase.CHECK
    next_offset: int = 0
    mirrored_end: int = 0
    stop: Stop | None = None
    trouble: MillraceError | None = None
    _pieces: deque[Piece] = field(default_factory=deque)
    _ahead: Ahead = field(default_factory=Ahead)
    _leader_epoch: int = NO_LEADER_EPOCH
    _outside: int = NO_OFFSET  # what the source was asked for last, and said to be outside of its log
    _append_at: int = 0  # where the target's log is to end for the next piece
    _joins: bool = False  # the first batch may begin below `next_offset`, as nothing that was mirrored ends there

    @property
    def wants_look(self) -> bool:
        """Whether both logs are to be looked at."""
        return self.phase is Phase.CHECK

    @property
    def wants_fetch(self) -> bool:
        """Whether the source is to be asked for what comes from `next_offset` on."""
        return self.phase is Phase.RUN and len(self._pieces) < MOST_PIECES

    @property
    def piece(self) -> Piece | None:
        """The piece to append next; None where there is none."""
        return self._pieces[0] if self._pieces else None

    def looked(self, look: Look) -> None:
        """Takes a look at both logs: goes on, wants to look again, or stops."""
        try:
            found = self._judged(look)
        except RecordError as error:
            found = damaged(self.what, error)
        if isinstance(found, Stop):
            self._stop(found)
        elif found is not None:
            self.next_offset = self.mirrored_end = found
            self._append_at = look.target_end
            self._joins = found != look.target_end or look.target_start == look.target_end
            if look.target_start == look.target_end < found:
                self._begin_at(found)
            self._leader_epoch = NO_LEADER_EPOCH
            self.trouble, self._ahead, self._outside = None, Ahead(), NO_OFFSET
            self.phase = Phase.RUN

    def fetched(self, answer: FetchedData | MillraceError) -> None:
        """Takes an answer of the source; what it has becomes a piece."""
        if self.phase is not Phase.RUN:
            return
        try:
            if isinstance(answer, MillraceError):
                raise answer
            if answer.asked_offset == self.next_offset:
                self._take(answer)
        except RecordError as error:
            self._stop(damaged(self.what, error))
        except MillraceError as error:
            self._outside = self.next_offset if isinstance(error, OffsetOutOfRangeError) else NO_OFFSET
            self._check_again(error)

    def appended(self, end_offset: int, error: MillraceError | None) -> Piece | None:
        """Takes the target's answer to the first piece; returns the piece where it was appended."""
        if self.phase is not Phase.RUN or not self._pieces:
            return None
        piece = self._pieces[0]
        if error is None and end_offset == piece.next_offset:
            self.mirrored_end = end_offset
            return self._pieces.popleft()
        damage = _damage(piece) if isinstance(error, CorruptRecordError) else None
        if damage is not None:
            self._stop(damaged(self.what, damage))
        elif error is not None and is_refusal(error):
            self._stop(refused(self.what, error))
        else:
            self._check_again(error)
        return None

    def failed(self, error: MillraceError) -> None:
        """Takes an error that left a look unmade: it is made later."""
        self._check_again(error)

    def _judged(self, look: Look) -> int | Stop | None:
        """Returns the offset to go on from, why to stop, or None where the logs don't tell yet."""
        if look.is_recreated:  # the keeper of topics begins it again, where that is accepted
            return None if Accept.RECREATED_TOPIC in self.accepted else recreated(self.what)
        if look.target_end == 0:
            return max(look.source_start, self.start_offset)
        if look.at < look.source_start and _has_ended(look):
            return ended(self.what, look.target_end)
        if look.source_start > look.target_end:
            stop = purged(self.what, look.target_end, look.source_start)
            return look.source_start if stop.option in self.accepted else stop
        if look.target_start == look.target_end or look.at < look.source_start:
            is_cut = look.target_end == self._outside
            return truncated(self.what, look.target_end, is_copied=False) if is_cut else look.target_end
        return self._compared(look)

    def _compared(self, look: Look) -> int | Stop | None:
        if look.ours is None:
            return None
        if look.theirs is None:
            return truncated(self.what, look.target_end, is_copied=False)
        match compared(look.ours.records, look.theirs.records, look.at, is_compacted=look.is_compacted):
            case Sameness.SAME:
                return look.target_end
            case Sameness.DIFFERENT:
                return truncated(self.what, look.target_end, is_copied=False)
            case _:
                return None

    def _begin_at(self, offset: int) -> None:
        """Has the target's empty log begin at an offset above its end."""
        self._pieces.append(Piece(self._append_at, memoryview(b""), offset, 0, NO_TIMESTAMP, offset))
        self.mirrored_end, self._append_at = self._append_at, offset

    def _take(self, fetched: FetchedData) -> None:
        """Makes a piece of an answer's batches; looks again where they are the first of another leader epoch."""
        found = fetched.batches(goes_on=not self._joins)
        batches = list(takewhile(lambda one: not self._ahead.has(one.header, fetched.high_watermark), found))
        if not batches:
            return
        first, last = batches[0].header, batches[-1].header
        if NO_LEADER_EPOCH != self._leader_epoch != first.partition_leader_epoch:
            self._check_again(None)
            return
        self._check_gaps(batches)
        data = [batch.header for batch in batches if not batch.header.is_control]
        piece = Piece(
            self._append_at,
            memoryview(fetched.records)[: sum(batch.header.size_bytes for batch in batches)],
            last.next_offset,
            sum(header.record_count for header in data),
            max((header.max_timestamp for header in data), default=NO_TIMESTAMP),
        )
        self._pieces.append(piece)
        self._leader_epoch, self._joins = last.partition_leader_epoch, False
        self.next_offset = self._append_at = piece.next_offset

    def _check_gaps(self, batches: list[FetchedBatch]) -> None:
        for batch in batches[1:] if self._joins else batches:
            if batch.absent is not None:
                self.check_gap(self.what, batch.absent)

    def _check_again(self, error: MillraceError | None) -> None:
        if self.phase is not Phase.STOPPED:
            self._pieces.clear()
            self.trouble = error
            self.phase = Phase.CHECK

    def _stop(self, stop: Stop) -> None:
        self._pieces.clear()
        self.stop = stop
        self.phase = Phase.STOPPED


def _has_ended(look: Look) -> bool:
    """Returns whether the target's last batch ends the mirroring into its topic; raises RecordError."""
    if look.ours is None:
        return False
    data = memoryview(look.ours.records)
    last = next((one for one in walk(data) if one[1].last_offset == look.at), None)
    if last is None or not is_mirror_end(last[1]):
        return False
    position, header = last
    told = decode_mirror_end(header, data[position : position + header.size_bytes])
    return told is not None and look.topic_id in (None, str(told))


def _damage(piece: Piece) -> RecordError | None:
    """Returns what is wrong with a piece that the target took for damaged; None where it was damaged on its way."""
    try:
        for position, header in walk(piece.records):
            check_crc(piece.records, position, header)
    except RecordError as error:
        return error
    return None
