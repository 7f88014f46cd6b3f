"""Carries out what copied partitions of one source want (`copy`): looks, fetches, and transactions at the target.

    this thread          look at new ones ── commit what is due ────────────┐
    the thread "fetch"   fetch the next answers from the source's leaders ──┴─► send what they bring, and again

One transaction is open at a time. It has the records, their runs for the offset map, and the progress, which the group
takes from this member of this generation alone (KIP-447). It is committed after a time, or after so many bytes, or
once the source has no more: then the next fetch follows the commit, and brings all that has come during it.
After one that failed there are fewer bytes, as a busy target may not take more in time.

    a batch that the target will never take   the transaction is aborted, and that partition left out
    a right on its topic that is lacking      the same, and one partition of the topic is tried alone, now and then
    an error that may pass                    aborted; all go on from their progress, with half as many bytes at a time
    the member is fenced, or has rejoined     aborted; all partitions are dropped until there is an assignment
    nobody knows whether a commit counts      the commit is repeated; where that can't be, the progress is read again
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.client.fetched import FetchedData
from millrace.client.groups import GroupMetadata, GroupOffset
from millrace.client.log_offsets import LogOffsets
from millrace.client.metadata import Partition
from millrace.client.simple_consumer import EpochEnd
from millrace.errors import MillraceError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace_pipelines.mirror.copy import Copy, CopyLook, Ids, Phase, Portion, Progress
from millrace_pipelines.mirror.counters import PartitionCounters
from millrace_pipelines.mirror.fetching import ANSWER_BYTES, PARTITION_BYTES, WAIT_MS, Answers
from millrace_pipelines.mirror.fetching import Bounds as FetchBounds
from millrace_pipelines.mirror.follow import GapCheck
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
from millrace_pipelines.mirror.lost_progress import KnownProgress
from millrace_pipelines.mirror.pauses import Backoff, Size
from millrace_pipelines.mirror.rights import DeniedError, is_lasting
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.stops import Mirrored, is_denial, is_refusal
from millrace_pipelines.mirror.transaction import Ended, MapsDeniedError, Outcome, Transaction


class CopyDoors(NamedTuple):
    """The doors to both clusters: the source's records (used in the background alone), and all else."""

    fetches: Reads
    source: Looks
    epoch_end: Callable[[Partition, int, int], EpochEnd]
    target: Looks
    progress: Callable[[Iterable[Partition]], Mapping[Partition, GroupOffset]]
    restored: Callable[[Mapping[Mirrored, int]], Mapping[Mirrored, KnownProgress | MillraceError]]
    transaction: Transaction
    check_gap: GapCheck


class TransactionBounds(NamedTuple):
    """How long a transaction is open, and how many bytes it has."""

    interval_s: float = 0.1
    size_bytes: int = 16 << 20


@dataclass(slots=True)
class _Line:
    copy: Copy
    begin: Begin
    counters: PartitionCounters
    backoff: Backoff = field(default_factory=Backoff)
    served: int = 0
    is_denied: bool = False  # for want of a right on the topic; what lifts it is a commit of records


class Copying(MirrorLoop):
    """The copied partitions of one source, in one thread; `assign`, `let_go` and `stop` are for any thread.

    `rejoin` is called when the group does not take this member's progress any more.
    """

    def __init__(
        self,
        source: str,
        doors: CopyDoors,
        around: Surroundings,
        background: Background[Answers],
        *,
        bounds: TransactionBounds,
        rejoin: Callable[[], None],
    ) -> None:
        super().__init__(source, around, background)
        self._doors = doors
        self._transaction = doors.transaction
        self._interval_s = bounds.interval_s
        self._size = Size(bounds.size_bytes)
        self._rejoin = rejoin
        self._lines: dict[Mirrored, _Line] = {}
        self._group: GroupMetadata | None = None
        self._new_group: GroupMetadata | None = None
        self._fenced: GroupMetadata | None = None
        self._suspects: deque[Mirrored] = deque()
        self._has_all = False

    def assign(self, assignment: Assignment, group: GroupMetadata) -> None:
        """Has the loop mirror these partitions as this member of the group from its next round on, and no others."""
        with self._changed:
            self._assigned, self._new_group = dict(assignment), group
            self._changed.notify()

    def let_go(self) -> None:
        """Has the loop drop all partitions: others have them soon."""
        with self._changed:
            self._assigned = {}
            self._changed.notify()

    def run(self) -> None:
        """Goes round until it is stopped; what is open then is aborted."""
        try:
            super().run()
            if self._transaction.is_open and self._group is not None:
                self._take_end(self._transaction.commit(self._group))
        finally:
            self._transaction.close()

    def go_round(self) -> bool:
        """Does what is due once; returns whether anything was."""
        self._take_assignment()
        looked = self._look()
        fetched = None if self._is_due and self._has_all else self._fetch()
        self._begin_lines()
        committed = self._commit_if_due()
        if fetched is not None:
            self._take(fetched.result())
        return looked or committed or fetched is not None

    def _take_assignment(self) -> None:
        with self._changed:
            assigned, group = self._assigned, self._new_group
        if group == self._fenced:
            return
        if group != self._group:
            self._drop_all()
            self._group = group
        for what in self._lines.keys() - assigned.keys():
            if self._transaction.is_open:
                self._take_end(self._transaction.abort())
            del self._lines[what]
            self._counters.drop(self._source, what)
        for what, begin in assigned.items():
            known = self._lines.get(what)
            if known is not None and (known.begin == begin or self._transaction.is_open):
                continue
            ids = Ids(begin.source_topic_id, begin.target_topic_id)
            copy = Copy(what, self._doors.check_gap, ids, begin.accepted, begin.start_offset)
            counters = self._counters.line(self._source, what, Way.COPY)
            counters.stop, counters.next_offset = None, None
            self._lines[what] = _Line(copy, begin, counters)

    def _drop_all(self) -> None:
        """Aborts what is open, and forgets all partitions: their progress is read again."""
        if self._transaction.is_open:
            self._take_end(self._transaction.abort())
        self._lines.clear()
        self._suspects.clear()

    def _due(self) -> list[_Line]:
        """Returns the lines that may do something: all but those that pause, or the first one that is suspected.

        A denied one is tried alone, once the open transaction has ended: it spoils no other's.
        """
        now_s = self._now_s()
        due = {what: one for what, one in self._lines.items() if one.backoff.is_over(now_s)}
        while self._suspects:
            if (one := due.get(self._suspects[0])) is not None and one.copy.phase is not Phase.STOPPED:
                return [one]
            self._suspects.popleft()
        denied = next((what for what, one in due.items() if one.is_denied), None)
        if denied is None:
            return list(due.values())
        if self._transaction.is_open:
            return []
        self._suspects.append(denied)
        return [due[denied]]

    def _look(self) -> bool:
        lines = [one for one in self._due() if one.copy.wants_look][:LOOKS_AT_ONCE]
        if not lines:
            return False
        source = self._doors.source.ends([one.copy.what.at_source for one in lines])
        target = self._doors.target.ends([one.copy.what.at_target for one in lines])
        ids = self._doors.source.topic_ids([one.copy.what.topic for one in lines])
        progress = self._progress(
            lines, target
        )  # after the target's ends: what lies below them has its progress by now
        for one in lines:
            what = one.copy.what
            at_source, at_target, known = source[what.at_source], target[what.at_target], progress[what]
            if isinstance(at_target, MillraceError):
                self._fails(one, at_target, is_of_target=True)
            elif isinstance(known, MillraceError):
                self._fails(one, known, is_of_target=True)
            elif isinstance(at_source, MillraceError):
                self._fails(one, at_source, is_of_target=False)
            else:
                look = CopyLook(
                    known.progress, at_source.start_offset, at_target.log_end, ids[what.topic],
                    source_end=at_source.log_end, is_restored=known.is_restored,
                )  # fmt: skip
                self._take_look(one, look, at_source)
        return True

    def _progress(
        self, lines: Sequence[_Line], target: Mapping[Partition, LogOffsets | MillraceError]
    ) -> dict[Mirrored, KnownProgress | MillraceError]:
        """Returns the progress of partitions, by the offset map where the group has lost it, or the error of each."""
        places = [one.copy.what for one in lines]
        try:
            committed = self._doors.progress([what.at_target for what in places])
        except MillraceError as error:
            return dict.fromkeys(places, error)
        known = {what: Progress.of(committed.get(what.at_target)) for what in places}
        ends = {what: target[what.at_target] for what in places if known[what] is None}
        lost = {what: log.log_end for what, log in ends.items() if isinstance(log, LogOffsets) and log.log_end}
        return {**{what: KnownProgress(one) for what, one in known.items()}, **self._doors.restored(lost)}

    def _take_look(self, one: _Line, look: CopyLook, at_source: LogOffsets) -> None:
        if look.progress is not None and look.progress.leader_epoch != NO_LEADER_EPOCH:
            try:
                place = one.copy.what.at_source
                epoch_end = self._doors.epoch_end(place, look.progress.leader_epoch, look.progress.next_offset)
            except MillraceError as error:
                self._fails(one, error, is_of_target=False)
                return
            look = look._replace(epoch_end=epoch_end)
        one.copy.looked(look)
        if look.is_restored and one.copy.phase is Phase.BEGIN:
            self._tell(f"{one.copy.what}: its progress was lost, and is {one.copy.next_offset} by the offset map")
        one.counters.source_end = at_source.end_offset
        one.counters.held_back = at_source.log_end - at_source.end_offset
        if one.copy.wants_look:
            one.backoff.failed(self._now_s())
        self._settle(one)

    def _begin_lines(self) -> None:
        firsts = {one.copy.what: one.copy.first_progress for one in self._due()}
        portions = {what: Portion((), first) for what, first in firsts.items() if first is not None}
        if portions and self._group is not None:
            self._transaction.add(portions)

    def _fetch(self) -> Future[Answers] | None:
        """Begins to fetch what is wanted; returns None where nothing is, or the throttle says to wait."""
        lines = [one for one in self._due() if one.copy.wants_fetch]
        is_full = self._transaction.size_bytes >= self._size.now
        if not lines or is_full or self._throttle.pause_s(self._now_s()) > 0:
            return None
        lines.sort(key=lambda one: one.served)
        offsets = {one.copy.what.at_source: one.copy.next_offset for one in lines}
        wait_ms = 0 if self._transaction.is_open else WAIT_MS
        bounds = FetchBounds(min(self._size.now, ANSWER_BYTES), min(self._size.now, PARTITION_BYTES), wait_ms)
        return self._background(lambda: self._doors.fetches.fetch(offsets, bounds))

    def _take(self, answers: Answers) -> None:
        self._round += 1
        portions: dict[Mirrored, Portion] = {}
        is_behind = False
        lines = {one.copy.what.at_source: one for one in self._lines.values()}
        for place, answer in answers.items():
            one = lines.get(place)
            if one is None:
                continue
            portion = one.copy.fetched(answer)
            if portion is not None:
                portions[one.copy.what] = portion
            if isinstance(answer, MillraceError):
                self._fails(one, answer, is_of_target=False)
                continue
            is_behind |= one.copy.next_offset < answer.last_stable_offset
            one.counters.source_end = answer.last_stable_offset
            one.counters.held_back = max(answer.high_watermark - answer.last_stable_offset, 0)
            self._throttle.took(len(answer.records), self._now_s())
            if answer.records:
                one.served = self._round
            self._settle(one)
        if portions:
            self._transaction.add(portions)
        self._has_all = not (portions and is_behind)
        if self._suspects and not portions:
            what = self._suspects.popleft()
            last = answers.get(what.at_source)
            if isinstance(last, FetchedData) and not last.records:
                self._permit(what)  # it has nothing to try it with

    @property
    def _is_due(self) -> bool:
        """Returns whether a transaction is open and has all there is, its full size or its full age."""
        is_old = self._transaction.age_s >= self._interval_s
        return self._transaction.is_open and (self._has_all or is_old or self._transaction.size_bytes >= self._size.now)

    def _commit_if_due(self) -> bool:
        if not self._is_due or self._group is None:
            return False
        self._take_end(self._transaction.commit(self._group))
        return True

    def _take_end(self, ended: Ended) -> None:
        """Tells the partitions of a transaction what became of it."""
        self._counters.transactions += ended.outcome is Outcome.COMMITTED
        self._counters.aborted_transactions += ended.outcome is not Outcome.COMMITTED
        lines = {what: self._lines[what] for what in ended.sent if what in self._lines}
        for what, one in lines.items():
            if ended.outcome is Outcome.COMMITTED:
                sent = ended.sent[what]
                one.copy.was_committed(sent.progress)
                one.counters.count(sent.records, sent.size_bytes, sent.newest_ms)
                if sent.records:
                    self._permit(what)
            elif ended.outcome is Outcome.UNKNOWN:
                one.copy.is_unknown()
            else:
                one.copy.was_rolled_back()
        if ended.outcome is Outcome.COMMITTED:
            self._troubles.works("the target")
            self._size.was_sent()
            if self._suspects and self._suspects[0] in lines:
                self._suspects.popleft()
        elif ended.outcome is Outcome.FENCED:
            self._fenced, self._group = self._group, None
            self._lines.clear()
            self._suspects.clear()
            self._rejoin()
        else:
            self._blame(ended, lines)
        for one in lines.values():
            self._settle(one)

    def _blame(self, ended: Ended, lines: Mapping[Mirrored, _Line]) -> None:
        """Leaves out the partitions that failed; tries each alone where the brokers don't tell which one did."""
        refused, failing = dict(ended.refused), dict(ended.failing)
        if any(not is_denial(one) for one in (ended.error, *failing.values()) if one is not None):
            self._size.was_too_large()
        if ended.error is not None and not refused and not failing:
            self._suspect(ended.error, lines, refused, failing)
        for what, error in refused.items():
            if what in lines:
                lines[what].copy.was_refused(error)
        for what, error in failing.items():
            if what in lines and is_denial(error):
                self._deny(what, error)
            elif what in lines:
                lines[what].copy.failed(error)
                self._fails(lines[what], error, is_of_target=True)

    def _suspect(
        self,
        error: MillraceError,
        lines: Mapping[Mirrored, _Line],
        refused: dict[Mirrored, MillraceError],
        failing: dict[Mirrored, MillraceError],
    ) -> None:
        """Blames the partition of a transaction that had one alone; of several, each is tried, or all pause."""
        if isinstance(error.__cause__, MillraceError) and not isinstance(error, DeniedError):
            error = error.__cause__
        is_of_one = (is_refusal(error) or is_denial(error)) and not isinstance(error, MapsDeniedError)
        if not is_of_one:
            self._pause_all(error, lines)
        elif len(lines) > 1:
            self._suspects = deque(lines)
        else:
            (refused if is_refusal(error) else failing).update(dict.fromkeys(lines, error))

    def _deny(self, what: Mirrored, error: MillraceError) -> None:
        """Leaves out all partitions of a topic on which a right is lacking, until a try of one of them succeeds."""
        now_s = self._now_s()
        for one in self._lines.values():
            if one.copy.what.target == what.target and one.copy.phase is not Phase.STOPPED:
                one.is_denied = True
                one.copy.failed(error)
                if one.backoff.is_over(now_s):
                    one.backoff.failed(now_s)
                one.counters.trouble, one.counters.is_lasting = str(error), is_lasting(error)
        self._troubles.fails(f"topic {what.target}", error)

    def _permit(self, what: Mirrored) -> None:
        """Has the partitions of a topic go on with the others again, if they were left out."""
        for one in self._lines.values():
            if one.copy.what.target == what.target and one.is_denied:
                one.is_denied, one.backoff = False, Backoff()
        self._troubles.works(f"topic {what.target}")

    def _pause_all(self, error: MillraceError, lines: Mapping[Mirrored, _Line]) -> None:
        """Has all partitions of a transaction wait, since the target does not take any of them now."""
        for one in lines.values():
            one.copy.failed(error)
            one.backoff.failed(self._now_s())
            one.counters.trouble, one.counters.is_lasting = str(error), is_lasting(error)
        self._troubles.fails("the target", error)

    def _settle(self, one: _Line) -> None:
        """Writes down where a partition is after an event that was no failure."""
        copy = one.copy
        if copy.phase is Phase.STOPPED:
            if one.counters.stop is None and copy.stop is not None:
                self._tell(copy.stop.reason)
            one.counters.stop = copy.stop
        elif copy.committed is not None and copy.trouble is None and not one.is_denied:
            one.counters.next_offset = copy.committed.next_offset
            one.counters.trouble, one.counters.is_lasting = "", False
            one.backoff.succeeded()
            self._troubles.works(str(copy.what))
            self._troubles.works(f"source {self._source}")

    def _fails(self, one: _Line, error: MillraceError, *, is_of_target: bool) -> None:
        one.backoff.failed(self._now_s())
        if one.copy.phase is Phase.STOPPED:
            self._settle(one)
            return
        self._note_trouble(one.counters, one.copy.what, error, is_of_target=is_of_target)
