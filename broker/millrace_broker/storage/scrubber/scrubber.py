"""The scrubber: a thread for each data directory, which checks all its logs again every `log.scrub.interval.ms`.

Bits rot where nobody reads, and a fault that is found a year late may have reached the last good replica. So each
directory has a thread that goes over its logs in rounds (`rounds`), at most `log.scrub.bytes.per.second` and in turns
with the load (`pace`). It checks one segment at a time (`Log.scrub`), which says what becomes of damage. It holds no
lock while it reads, and reads with few descriptors and little memory.

An error of the disk, or a log that is deleted, cut, compacted or moved meanwhile, ends the check of one segment; the
round goes on with the next one. What could not be checked is counted as left, and then the next round begins sooner.
A page that is in the page cache is checked there, and not on the disk; what nobody reads is not there.

`scrub-checkpoint` is written every minute and at the end (`rounds`): a crash costs what was checked since.

Threads: `start`, `reconfigure`, `stop` and `progress` may be called by any; the rest of `DirScrubber` belongs to its
thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

from millrace.clock import Clock
from millrace.errors import CompactionStoppedError, CorruptRecordError, MillraceError, is_unforeseen
from millrace.fs import FileSystem
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.filenames import SCRUB_CHECKPOINT, TopicPartition
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.manager.log_manager import LogManager
from millrace_broker.storage.recovery.range_files import read_lines, write_lines
from millrace_broker.storage.reports import ScrubProgress
from millrace_broker.storage.scrubber.pace import Pace
from millrace_broker.storage.scrubber.rounds import Place, Rounds, checked_bytes, logs_left
from millrace_broker.storage.segments.segment import LogSegment

logger = logging.getLogger(__name__)

CHECKPOINT_MS = 60_000
LOOK_S = 1.0  # between two looks whether a round is due, or the scrubber was turned on


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubConfig:
    """The settings `log.scrub.bytes.per.second`, 0 for no scrubbing, `log.scrub.interval.ms`, and the delay.

    The scrubber leaves the broker alone for `log.scrub.initial.delay.ms` after its start.
    """

    bytes_per_second: int
    interval_ms: int
    initial_delay_ms: int = 0


@dataclass(slots=True)
class ScrubCounts:
    """Counts what the scrubber of one data directory has checked and found since the broker's start."""

    segments: int = 0
    rounds: int = 0
    findings: int = 0
    failures: int = 0


class DirScrubber:
    """Goes over the logs of one data directory in rounds, on a thread of its own."""

    def __init__(  # noqa: PLR0917 -- the wiring of a broker, once
        self, fs: FileSystem, clock: Clock, logs: LogManager, data_dir: DataDir, stopping: Event, config: ScrubConfig
    ) -> None:
        self.config = config
        self.rounds = Rounds()
        self.counts = ScrubCounts()
        self._fs = fs
        self._clock = clock
        self._logs = logs
        self._data_dir = data_dir
        self._stopping = stopping
        self._path = os.path.join(data_dir.path, SCRUB_CHECKPOINT)
        self._written_ms = clock.monotonic_ms()
        self._failing: set[TopicPartition] = set()
        self._pace = Pace(clock, stopping.wait, lambda: self.config.bytes_per_second)

    def run(self) -> None:
        """Makes rounds until the scrubber stops."""
        self._stopping.wait(self.config.initial_delay_ms / 1000)
        while not self._stopping.is_set():
            try:
                self.step()
            except CompactionStoppedError:
                break
            except Exception as error:  # no failure ends the scrubber
                logger.error("%s: %s", self._path, error, exc_info=is_unforeseen(error))  # noqa: TRY400
            self._stopping.wait(LOOK_S)
        self.save()

    def step(self) -> None:
        """Goes over what is left of the current round, or of one that is due now. Raises CompactionStoppedError."""
        if not self.config.bytes_per_second or not self._data_dir.is_online:
            return
        now_ms = self._clock.now_ms()
        if self.rounds.started_ms is None:
            if self.rounds.next_ms(now_ms, self.config.interval_ms) > now_ms:
                return
            self.rounds = self.rounds.begun(now_ms)
        self._pace.begin()
        for topic_partition in logs_left(sorted(self._here()), self.rounds.place):
            self._check_log(topic_partition)
        self.rounds = self.rounds.ended(self._clock.now_ms())
        self.counts.rounds += 1
        self.save()

    @property
    def progress(self) -> ScrubProgress:
        """What this scrubber has done so far, and how much of the current round is done."""
        rounds, last, config, counts = self.rounds, self.rounds.last, self.config, self.counts
        sizes = {key: [(one.base_offset, one.size_bytes) for one in log.segments] for key, log in self._here().items()}
        return ScrubProgress(
            directory=self._data_dir.path,
            bytes_per_second=config.bytes_per_second,
            interval_ms=config.interval_ms,
            round_started_ms=rounds.started_ms,
            round_findings=rounds.findings,
            checked_bytes=checked_bytes(rounds, sizes),
            total_bytes=sum(size for segments in sizes.values() for _, size in segments),
            last_started_ms=None if last is None else last.started_ms,
            last_ended_ms=None if last is None else last.ended_ms,
            last_findings=None if last is None else last.findings,
            all_bytes=self._pace.taken_bytes,
            all_segments=counts.segments,
            all_rounds=counts.rounds,
            all_findings=counts.findings,
            all_failures=counts.failures,
        )

    def _here(self) -> Mapping[TopicPartition, Log]:
        return self._logs.by_data_dir()[self._data_dir.path] or {}

    def _check_log(self, topic_partition: TopicPartition) -> None:
        """Checks the segments of a log that it has now, from the round's place on."""
        log, place = self._logs.get(topic_partition), self.rounds.place
        if log is None:
            return
        end_offset = log.log_end_offset  # what is appended meanwhile waits for the next round, or this one had no end
        offset = place.offset if place is not None and place.topic_partition == topic_partition else 0
        while (segment := _first_from(log, offset, end_offset)) is not None:
            findings, left = self._check(log, segment)
            offset = segment.base_offset + 1
            self.rounds = self.rounds.at(Place(topic_partition, offset), findings, left)
            self.counts.segments += 1
            self.counts.findings += findings
            if self._clock.monotonic_ms() - self._written_ms >= CHECKPOINT_MS:
                self.save()

    def _check(self, log: Log, segment: LogSegment) -> tuple[int, int]:
        """Returns how much was found in a segment, and whether something is left, as 1 or 0."""
        try:
            scrubbed = log.scrub(segment, self._pace.take)
            self._pace.take(0)  # so there are rests between segments that are small, too
        except CompactionStoppedError:
            raise
        except MillraceError as error:
            return 0, self._note_failure(log, error)
        self._failing.discard(log.topic_partition)
        return scrubbed.findings, int(scrubbed.is_left)

    def _note_failure(self, log: Log, error: MillraceError) -> int:
        """Counts and logs a failure, but for that of a log that is gone; returns how much is left to check."""
        key = log.topic_partition
        if self._logs.get(key) is not log or not self._data_dir.is_online:
            return 0
        self.counts.failures += 1
        if key not in self._failing:
            self._failing.add(key)
            logger.error("%s can't be checked, and is tried again: %s", key, error, exc_info=is_unforeseen(error))
        return 1

    def load(self) -> None:
        """Reads from the checkpoint where the last run of the broker was; without one a round begins from the start."""
        try:
            self.rounds = Rounds.of_lines(read_lines(self._fs, self._path))
        except (OSError, ValueError, CorruptRecordError) as error:
            logger.warning("%s: %s; the scrubber begins from the start", self._path, error)

    def save(self) -> None:
        """Writes the checkpoint, unless the disk fails."""
        self._written_ms = self._clock.monotonic_ms()
        if self._data_dir.is_online and self._data_dir.is_held:
            try:
                write_lines(self._fs, self._path, self.rounds.lines())
            except OSError as error:
                logger.warning("%s is not written: %s", self._path, error)


def _first_from(log: Log, offset: int, end_offset: int) -> LogSegment | None:
    """Returns the first segment that begins at `offset` or above, and below `end_offset`; None without one."""
    return next((one for one in log.segments if offset <= one.base_offset < end_offset), None)


class Scrubber:
    """The scrubbers of a broker's data directories, which run from `start` to `stop`."""

    def __init__(self, fs: FileSystem, clock: Clock, logs: LogManager, config: ScrubConfig) -> None:
        self._stopping = Event()
        self._threads: list[ThreadPoolExecutor] = []
        self._scrubbers = [DirScrubber(fs, clock, logs, one, self._stopping, config) for one in logs.dirs.all]

    def start(self) -> None:
        """Reads the checkpoints, and begins to scrub, on a thread for each data directory."""
        for number, scrubber in enumerate(self._scrubbers):
            scrubber.load()
            thread = ThreadPoolExecutor(1, thread_name_prefix=f"scrub-{number}")
            thread.submit(scrubber.run)
            self._threads.append(thread)

    def reconfigure(self, config: ScrubConfig) -> None:
        """Sets other limits, which hold at once."""
        for scrubber in self._scrubbers:
            scrubber.config = config

    def stop(self) -> None:
        """Ends all checks, and blocks until the threads have written where they are."""
        self._stopping.set()
        for thread in self._threads:
            thread.shutdown()

    def progress(self) -> list[ScrubProgress]:
        """Returns what was done in each data directory, and how much of its current round is done."""
        return [scrubber.progress for scrubber in self._scrubbers]
