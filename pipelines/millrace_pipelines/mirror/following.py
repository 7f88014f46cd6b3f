"""Carries out what followed partitions of one source want (`follow`): looks, fetches and appends, for all of them.

    this thread          look at new ones ── append the pieces of the last answers ──┐
    the thread "fetch"   fetch the next answers from all leaders of the source ──────┴─► take the answers, and again

So the next answers come while the last ones are written. What waits is bounded by the answers: one of each leader is
under way, and one is being appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from millrace.client.fetched import FetchedData
from millrace.client.metadata import Partition
from millrace.client.mirrored_appends import MirroredAppend, MirroredLog
from millrace.errors import AnswerLostError, MillraceError, OffsetOutOfRangeError
from millrace_pipelines.mirror.counters import PartitionCounters
from millrace_pipelines.mirror.fetching import ONE_BATCH, PARTITION_BYTES, Answers, Bounds
from millrace_pipelines.mirror.follow import Follow, GapCheck, Look, Phase, Piece
from millrace_pipelines.mirror.loops import (
    LOOKS_AT_ONCE,
    Assignment,
    Background,
    Begin,
    Looks,
    MirrorLoop,
    Reads,
    Surroundings,
)
from millrace_pipelines.mirror.pauses import Backoff, Size
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.stops import Mirrored

APPEND_BYTES = 16 << 20  # of one request, or one piece where that is larger


class Appends(Protocol):
    """The door through which batches are appended at the target."""

    def append(self, appends: Sequence[MirroredAppend]) -> Mapping[Partition, MirroredLog]:
        """Appends each where the log ends as expected; returns the logs after that."""


class FollowDoors(NamedTuple):
    """The doors to both clusters: the source's records (used in the background alone), and all else."""

    fetches: Reads
    source_records: Reads
    source: Looks
    target_records: Reads
    target: Looks
    appends: Appends
    check_gap: GapCheck


@dataclass(slots=True)
class _Line:
    follow: Follow
    begin: Begin
    counters: PartitionCounters
    backoff: Backoff = field(default_factory=Backoff)
    served: int = 0


class Following(MirrorLoop):
    """The followed partitions of one source, in one thread; `assign` and `stop` are for any thread."""

    def __init__(self, source: str, doors: FollowDoors, around: Surroundings, background: Background[Answers]) -> None:
        super().__init__(source, around, background)
        self._doors = doors
        self._size = Size(APPEND_BYTES)
        self._lines: dict[Mirrored, _Line] = {}

    def assign(self, assignment: Assignment) -> None:
        """Has the loop mirror these partitions from its next round on, and no others."""
        with self._changed:
            self._assigned = dict(assignment)
            self._changed.notify()

    def go_round(self) -> bool:
        """Does what is due once; returns whether anything was."""
        self._take_assignment()
        looked = self._look()
        fetched = self._fetch()
        appended = self._append()
        if fetched is not None:
            self._take(fetched.result())
        return looked or appended or fetched is not None

    def _take_assignment(self) -> None:
        assigned = self._assigned
        for what in self._lines.keys() - assigned.keys():
            del self._lines[what]
            self._counters.drop(self._source, what)
        for what, begin in assigned.items():
            known = self._lines.get(what)
            if known is not None and known.begin == begin:
                continue
            follow = Follow(what, self._doors.check_gap, begin.accepted, begin.start_offset)
            counters = self._counters.line(self._source, what, Way.FOLLOW)
            counters.stop, counters.next_offset = None, None
            self._lines[what] = _Line(follow, begin, counters)

    def _due(self) -> Iterable[_Line]:
        now_s = self._now_s()
        return (one for one in self._lines.values() if one.backoff.is_over(now_s))

    def _look(self) -> bool:
        lines = [one for one in self._due() if one.follow.wants_look][:LOOKS_AT_ONCE]
        if not lines:
            return False
        source = self._doors.source.ends([one.follow.what.at_source for one in lines])
        target = self._doors.target.ends([one.follow.what.at_target for one in lines])
        ids = self._doors.source.topic_ids([one.follow.what.topic for one in lines])
        for one in lines:
            what, topic_id = one.follow.what, one.begin.source_topic_id
            at_source, at_target = source[what.at_source], target[what.at_target]
            is_recreated = topic_id is not None and ids[what.topic] not in (None, topic_id)
            try:
                if isinstance(at_source, MillraceError):
                    raise at_source
                if isinstance(at_target, MillraceError):
                    raise at_target
                look = Look(at_target.start_offset, at_target.log_end, at_source.start_offset)
                look = look._replace(is_recreated=is_recreated, topic_id=one.begin.target_topic_id)
                one.follow.looked(self._with_records(what, look))
            except MillraceError as error:
                one.follow.failed(error)
                self._fails(one, error, is_of_target=at_target is error)
            else:
                one.counters.source_end = at_source.log_end
                self._settle(one)
        return True

    def _with_records(self, what: Mirrored, look: Look) -> Look:
        """Returns the look with the batches to compare; raises the error of a fetch."""
        if look.target_start == look.target_end:
            return look
        ours = self._doors.target_records.fetch({what.at_target: look.at}, ONE_BATCH)[what.at_target]
        if isinstance(ours, MillraceError):
            raise ours
        if look.at < look.source_start:
            return look._replace(ours=ours)
        theirs = self._source_batch(what, look)
        if isinstance(theirs, MillraceError) and not isinstance(theirs, OffsetOutOfRangeError):
            raise theirs
        if isinstance(theirs, MillraceError) and self._source_start(what) > look.at:
            return look  # without records, so that all is looked at again: the source has deleted that offset meanwhile
        return look._replace(
            ours=ours,
            theirs=None if isinstance(theirs, MillraceError) else theirs,
            is_compacted=self._doors.source.is_compacted(what.topic),
        )

    def _source_batch(self, what: Mirrored, look: Look) -> FetchedData | MillraceError:
        """Returns the source's batch at the last mirrored offset, or its error.

        Where the source shows none, its high watermark may lag behind. If its log ends below the target's it has lost
        that offset, and the error is that of the target's end.
        """
        place = what.at_source
        found = self._doors.source_records.fetch({place: look.at}, ONE_BATCH)[place]
        if isinstance(found, MillraceError) or found.records:
            return found
        beyond = self._doors.source_records.fetch({place: look.target_end}, ONE_BATCH)[place]
        return beyond if isinstance(beyond, OffsetOutOfRangeError) else found

    def _source_start(self, what: Mirrored) -> int:
        """Returns where the source's log starts now; raises MillraceError."""
        ends = self._doors.source.ends([what.at_source])[what.at_source]
        if isinstance(ends, MillraceError):
            raise ends
        return ends.start_offset

    def _fetch(self) -> Future[Answers] | None:
        """Begins to fetch what is wanted; returns None where nothing is, or the throttle says to wait."""
        lines = [one for one in self._due() if one.follow.wants_fetch]
        if not lines or self._throttle.pause_s(self._now_s()) > 0:
            return None
        lines.sort(key=lambda one: one.served)
        offsets = {one.follow.what.at_source: one.follow.next_offset for one in lines}
        bounds = Bounds(partition_bytes=min(self._size.now, PARTITION_BYTES))
        return self._background(lambda: self._doors.fetches.fetch(offsets, bounds))

    def _take(self, answers: Answers) -> None:
        self._round += 1
        lines = {one.follow.what.at_source: one for one in self._lines.values()}
        for place, answer in answers.items():
            one = lines.get(place)
            if one is None:
                continue
            one.follow.fetched(answer)
            if isinstance(answer, MillraceError):
                self._fails(one, answer, is_of_target=False)
                continue
            one.counters.source_end = answer.high_watermark
            self._throttle.took(len(answer.records), self._now_s())
            if answer.records:
                one.served = self._round
            self._settle(one)

    def _append(self) -> bool:
        has_appended = False
        while lines := self._with_pieces():
            has_appended = True
            answers = self._doors.appends.append(
                [
                    MirroredAppend(
                        *line.follow.what.at_target, piece.end_offset, bytes(piece.records), piece.log_start_offset
                    )
                    for line, piece in lines
                ]
            )
            for one, _ in lines:
                log = answers[one.follow.what.at_target]
                piece = one.follow.appended(log.end_offset, log.error)
                if piece is not None:
                    one.counters.count(piece.record_count, len(piece.records), piece.newest_ms)
                    self._troubles.works("the target")
                    self._settle(one)
                elif one.follow.phase is Phase.STOPPED:
                    self._settle(one)
                else:
                    self._fails(one, log.error, is_of_target=True)
            is_lost = any(isinstance(log.error, AnswerLostError) for log in answers.values())
            self._size.was_too_large() if is_lost else self._size.was_sent()
        return has_appended

    def _with_pieces(self) -> list[tuple[_Line, Piece]]:
        found: list[tuple[_Line, Piece]] = []
        size = 0
        for one in self._lines.values():
            piece = one.follow.piece
            if piece is None or (found and size + len(piece.records) > self._size.now):
                continue
            size += len(piece.records)
            found.append((one, piece))
        return found

    def _settle(self, one: _Line) -> None:
        """Writes down where a partition is after an event that was no failure."""
        follow = one.follow
        if follow.phase is Phase.STOPPED:
            if one.counters.stop is None and follow.stop is not None:
                self._tell(follow.stop.reason)
            one.counters.stop = follow.stop
        elif follow.phase is Phase.CHECK:
            one.backoff.failed(self._now_s())
        else:
            one.backoff.succeeded()
            one.counters.next_offset = follow.mirrored_end
            one.counters.trouble, one.counters.is_lasting = "", False
            self._troubles.works(str(follow.what))
            self._troubles.works(f"source {self._source}")

    def _fails(self, one: _Line, error: MillraceError | None, *, is_of_target: bool) -> None:
        one.backoff.failed(self._now_s())
        if one.follow.phase is Phase.STOPPED:
            self._settle(one)
        elif error is not None:
            self._note_trouble(one.counters, one.follow.what, error, is_of_target=is_of_target)
