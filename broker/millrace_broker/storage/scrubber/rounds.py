"""The rounds of the scrubber over the logs of one data directory: what comes next, and when; pure functions.

A round goes over all logs that are there when it begins, by topic and partition, and in each by offset. So what comes
next is what was checked longest ago, or never. `Place` says up to where a round has come; all before it is checked.

    round under way     segments from its place on, then the next log's ...
    round at its end    the next one begins `log.scrub.interval.ms` after the beginning of this one, or at once if
                        that is over; sooner if something was left that the next round must see to, though no sooner
                        than after nine times as long as this round took: a bad sector must not keep the disk busy

Where the clock was set back behind the beginning of the last round, nobody knows how long ago that was, and the next
round begins at once.

The file `scrub-checkpoint` in the data directory has the place, so that a restart goes on there. It has the form of
`damaged-ranges` (`range_files`); times are milliseconds since 1970:

    version: 0
    last 1790000000000 1790003600000 2 0        of the last complete round: its begin, its end, findings, what is left
    now 1790604800000 1 0                       of the round under way: its begin, findings, what is left
    at flights 3 1048576                        topic, partition and offset from which it goes on
    crc32c: 5a1cfe03

Without the file, and with one that is damaged, a round begins from the start: nothing is lost but the time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from millrace_broker.storage.filenames import TopicPartition

AGAIN_MS = 600_000  # after the begin of a round that has left something, and was short
RESTS = 9


class Place(NamedTuple):
    """A place in a round: the log to go on with, and the offset of the segment in it."""

    topic_partition: TopicPartition
    offset: int


class CompleteRound(NamedTuple):
    """A round that came to its end: when it began and ended, how much it found, and how much it left."""

    started_ms: int
    ended_ms: int
    findings: int
    left: int


class Rounds(NamedTuple):
    """The round that is under way, if any, and the last complete one.

    `started_ms` is when the current round began, None between two rounds; `place` is where it goes on, None at its
    beginning. `left` counts the logs and segments that could not be checked, or not be mended yet.
    """

    last: CompleteRound | None = None
    started_ms: int | None = None
    findings: int = 0
    left: int = 0
    place: Place | None = None

    def next_ms(self, now_ms: int, interval_ms: int) -> int:
        """Returns when the next round is to begin; `now_ms`, or earlier, says at once."""
        last = self.last
        if last is None or last.started_ms > now_ms:
            return now_ms
        again_ms = max(AGAIN_MS, (last.ended_ms - last.started_ms) * (1 + RESTS))
        return last.started_ms + (min(interval_ms, again_ms) if last.left else interval_ms)

    def begun(self, now_ms: int) -> Rounds:
        """Returns the rounds with another one that begins."""
        return Rounds(self.last, now_ms)

    def at(self, place: Place, findings: int = 0, left: int = 0) -> Rounds:
        """Returns the rounds with all before `place` checked, where so much was found and left."""
        return self._replace(place=place, findings=self.findings + findings, left=self.left + left)

    def ended(self, now_ms: int) -> Rounds:
        """Returns the rounds with the current one complete."""
        assert self.started_ms is not None
        return Rounds(CompleteRound(self.started_ms, now_ms, self.findings, self.left))

    def lines(self) -> list[str]:
        """Returns the lines of the file."""
        lines = [] if self.last is None else [" ".join(map(str, ("last", *self.last)))]
        if self.started_ms is not None:
            lines.append(f"now {self.started_ms} {self.findings} {self.left}")
            if self.place is not None:
                (topic, partition), offset = self.place
                lines.append(f"at {topic} {partition} {offset}")
        return lines

    @classmethod
    def of_lines(cls, lines: Sequence[str]) -> Self:
        """Returns the rounds that a file's lines tell of. Raises ValueError where they make no sense."""
        rounds = cls()
        for line in lines:
            match line.split(" "):
                case ["last", *numbers] if len(numbers) == len(CompleteRound._fields):
                    rounds = rounds._replace(last=CompleteRound(*map(int, numbers)))
                case ["now", started_ms, findings, left]:
                    rounds = rounds._replace(started_ms=int(started_ms), findings=int(findings), left=int(left))
                case ["at", topic, partition, offset] if rounds.started_ms is not None:
                    rounds = rounds._replace(place=Place(TopicPartition(topic, int(partition)), int(offset)))
                case _:
                    raise ValueError(f"{line!r} is none of last, now, at")
        return rounds


def logs_left(logs: Sequence[TopicPartition], place: Place | None) -> Sequence[TopicPartition]:
    """Returns those of the sorted logs that a round has still to go over, the one at `place` included."""
    return logs if place is None else logs[bisect_left(logs, place.topic_partition) :]


def checked_bytes(rounds: Rounds, sizes: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> int:
    """Returns how many bytes the current round has checked; `sizes` are (base offset, size) of the logs' segments.

    Between two rounds that is all that is there.
    """
    if rounds.started_ms is None:
        return sum(size for segments in sizes.values() for _, size in segments)
    if rounds.place is None:
        return 0
    here, offset = rounds.place
    before = (size for key, segments in sizes.items() if key < here for _, size in segments)
    return sum(before) + sum(size for base, size in sizes.get(here, ()) if base < offset)
