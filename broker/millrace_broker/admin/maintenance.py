"""Looks after the logs of a broker: on its own timers (`chores`), and on request (`endpoint`).

`maintenance.request.interval.ms` says how often something else, such as Dagster, requests retention and compaction. The
broker's own timers then stand back, and step in once no request has come for three intervals. The start of the broker
counts as a request.

Runs on the event loop; what waits for a disk runs in a worker thread meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from millrace.clock import Clock
from millrace_broker.metrics import MaintenanceCounts
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import (
    CompactionReport,
    LogCleaner,
    LogManager,
    RetentionReport,
    Scrubber,
    ScrubProgress,
    VerifyReport,
)
from millrace_broker.storage.data_dirs.data_dir import DataDir

logger = logging.getLogger(__name__)

MISSED_INTERVALS = 3


def is_own_turn(*, last_request_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Returns whether the broker does the work by itself: none was requested for three intervals, or none is expected.

    `interval_ms` is -1 where no requests are expected; the times are monotonic.
    """
    return interval_ms < 0 or now_ms - last_request_ms >= MISSED_INTERVALS * interval_ms


class OwnTimer:
    """Decides whether the broker does one kind of work by itself, or leaves it to other programs' requests."""

    def __init__(self, work: str, interval_ms: int, clock: Clock) -> None:
        """Takes the work's name for log lines, and how often, in ms, other programs request it; -1 for never."""
        self._work = work
        self._interval_ms = interval_ms
        self._clock = clock
        self._last_request_ms = clock.monotonic_ms()
        self._stands_back = interval_ms >= 0

    def note_request(self) -> None:
        """Takes note that another program has requested the work now."""
        self._last_request_ms = self._clock.monotonic_ms()
        if self._interval_ms >= 0 and not self._stands_back:
            self._stands_back = True
            logger.info("%s is requested from outside again; the broker's own timer stands back", self._work)

    def is_own_turn(self) -> bool:
        """Returns whether the broker does the work by itself now; logs when this has changed."""
        is_own = is_own_turn(
            last_request_ms=self._last_request_ms, interval_ms=self._interval_ms, now_ms=self._clock.monotonic_ms()
        )
        if is_own and self._stands_back:
            self._stands_back = False
            logger.warning(
                "%s has not been requested for %d intervals of maintenance.request.interval.ms=%d; "
                "the broker's own timer steps in",
                self._work,
                MISSED_INTERVALS,
                self._interval_ms,
            )
        return is_own


class LogMaintenance:
    """Retention, compaction and verification of all logs that a broker has.

    `topics` are those whose logs are treated, None for all; a dry run reports the same work and does not do it.
    """

    def __init__(  # noqa: PLR0917 -- the wiring of a broker, once
        self,
        logs: LogManager,
        cleaner: LogCleaner,
        scrubber: Scrubber,
        replicas: ReplicaManager,
        clock: Clock,
        request_interval_ms: int,
        counts: MaintenanceCounts,
    ) -> None:
        """Takes, as `request_interval_ms`, how often other programs request retention and compaction; -1 for never."""
        self._logs = logs
        self._cleaner = cleaner
        self._scrubber = scrubber
        self._replicas = replicas
        self._clock = clock
        self._counts = counts
        self._timers = {work: OwnTimer(work, request_interval_ms, clock) for work in ("retention", "compaction")}

    def topics(self) -> Collection[str]:
        """Returns the names of the topics that have logs on this broker."""
        return {key.topic for key in self._logs.logs()}

    def note_request(self, work: Literal["retention", "compaction"]) -> None:
        """Takes note that another program has requested the work for all logs, so that the broker's timer pauses."""
        self._timers[work].note_request()

    async def apply_retention(
        self, topics: Collection[str] | None = None, *, dry_run: bool = False
    ) -> Sequence[RetentionReport]:
        """Deletes the segments that retention allows; returns a report per partition. Requests run between two logs."""
        self._logs.learn_newest(await asyncio.to_thread(self._logs.read_newest, topics))
        reports = []
        for report in self._logs.retention(topics, dry_run=dry_run):
            reports.append(report)
            self._counts.retention_removed_bytes += 0 if dry_run else report.deleted_bytes
            await asyncio.sleep(0)
        if not dry_run:
            await asyncio.to_thread(self._logs.remove_deleted)
        return reports

    async def compact(
        self, topics: Collection[str] | None = None, *, dry_run: bool = False, only_due: bool = False
    ) -> Sequence[CompactionReport]:
        """Compacts each log with compaction, or with `only_due` those that need it; returns a report per partition."""
        work = self._cleaner.plan if dry_run else self._cleaner.run
        started_s = self._clock.monotonic_s()
        reports = await asyncio.to_thread(work, topics, force=not only_due)
        self._logs.release_replaced()
        if reports and not dry_run:
            self._counts.compactions.observe(self._clock.monotonic_s() - started_s)
            self._counts.compaction_removed_bytes += sum(one.bytes_before - one.bytes_after for one in reports)
            self._counts.compaction_failures += sum(bool(one.error) for one in reports)
        return reports

    async def verify(self, topics: Collection[str] | None = None, *, dry_run: bool = False) -> Sequence[VerifyReport]:
        """Checks every byte of the topics' logs, and returns a report of the damage for each partition."""
        return await asyncio.to_thread(self._logs.verify, topics, dry_run=dry_run)

    def scrub_progress(self) -> Sequence[ScrubProgress]:
        """Returns what the scrubber has done in each data directory; any thread may ask."""
        return self._scrubber.progress()

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the damaged ranges in each data directory, by its path, as sentences; any thread may ask."""
        return self._logs.damage()

    async def apply_retention_unrequested(self) -> None:
        """Deletes the segments that retention allows, unless other programs request that."""
        if self._timers["retention"].is_own_turn():
            await self.apply_retention()

    async def compact_unrequested(self) -> None:
        """Compacts the logs that need it, unless other programs request that."""
        if self._timers["compaction"].is_own_turn():
            await self.compact(only_due=True)

    async def checkpoint_high_watermarks(self, data_dir: DataDir | None = None) -> None:
        """Writes the high watermarks of a data directory's logs to its checkpoint file; of all directories for None."""
        await asyncio.to_thread(self._logs.checkpoint_high_watermarks, self._replicas.high_watermarks(), data_dir)
