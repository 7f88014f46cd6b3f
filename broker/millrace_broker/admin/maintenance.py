"""Looks after the logs of a broker: on its own timers (`chores`), and on request (`admin`).

Runs on the event loop; what waits for a disk runs in a worker thread meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import CompactionReport, LogCleaner, LogManager, RetentionReport, VerifyReport


class LogMaintenance:
    """The maintenance of all logs that a broker has."""

    def __init__(self, logs: LogManager, cleaner: LogCleaner, replicas: ReplicaManager) -> None:
        self._logs = logs
        self._cleaner = cleaner
        self._replicas = replicas

    async def apply_retention(self) -> Sequence[RetentionReport]:
        """Deletes what retention allows and returns a report per partition. Requests go before the next log."""
        reports = []
        for report in self._logs.retention():
            reports.append(report)
            await asyncio.sleep(0)
        return reports

    async def compact(self) -> Sequence[CompactionReport]:
        """Compacts every compacted log, due or not, and returns a report per partition."""
        return await self._compact(force=True)

    async def compact_due(self) -> Sequence[CompactionReport]:
        """Compacts the logs that are due and returns a report per partition."""
        return await self._compact(force=False)

    async def verify(self) -> Sequence[VerifyReport]:
        """Walks every log's segments and returns a report per partition."""
        return await asyncio.to_thread(self._logs.verify)

    async def expire_producers(self) -> int:
        """Forgets idempotent producers that have been silent for long, and returns how many."""
        return self._logs.expire_producers()

    async def flush_due(self) -> None:
        """Syncs the logs whose flush policy asks for it."""
        await asyncio.to_thread(self._logs.flush_due)

    async def remove_deleted(self) -> None:
        """Removes the files of deleted segments and logs whose delay is over."""
        await asyncio.to_thread(self._logs.remove_deleted)

    async def checkpoint(self) -> None:
        """Writes the recovery points and log start offsets of all data directories."""
        await asyncio.to_thread(self._logs.checkpoint)

    async def checkpoint_high_watermarks(self) -> None:
        """Writes the high watermarks of the led partitions."""
        await asyncio.to_thread(self._logs.checkpoint_high_watermarks, self._replicas.high_watermarks())

    async def _compact(self, *, force: bool) -> Sequence[CompactionReport]:
        reports = await asyncio.to_thread(self._cleaner.run, force=force)
        self._logs.release_replaced()
        return reports
