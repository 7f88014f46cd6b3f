"""Where appended batches go: into the active segment, or into a new one that is begun for them (spec B2).

What is placed together is one write. What fails leaves the log as it was: a write that came half-way is cut off again,
and where even that fails the data folder goes offline, since what the file ends with is not known. Belongs to the log's
own thread.
"""

from __future__ import annotations

from millrace.errors import RecordTooLargeError
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import storage_error, storage_errors
from millrace_broker.storage.flushing import Flushing
from millrace_broker.storage.health import DirHealth
from millrace_broker.storage.placement import Placement
from millrace_broker.storage.producer_state_manager import ProducerStateManager
from millrace_broker.storage.rolling import Rolling
from millrace_broker.storage.segment import LogSegment
from millrace_broker.storage.segment_list import SegmentList


class SegmentWriter:
    """Writes at the end of one log's segments."""

    def __init__(
        self,
        segments: SegmentList,
        rolling: Rolling,
        producers: ProducerStateManager,
        flushing: Flushing,
        health: DirHealth,
    ) -> None:
        self._segments = segments
        self._rolling = rolling
        self._producers = producers
        self._flushing = flushing
        self._health = health

    @property
    def config(self) -> LogConfig:
        """The settings that segments are rolled and made by."""
        return self._rolling.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._rolling.config = config

    def takes(self, placement: Placement) -> bool:
        """Whether the active segment is begun, and has room for all of it."""
        active = self._segments.now.active
        fits = active.size_bytes > 0 and len(placement.batches) <= active.index_room
        return fits and not self._is_due(active, placement)

    def write(self, placement: Placement, offset: int) -> None:
        """Write what was placed from `offset` on. RecordTooLargeError, StorageError."""
        segment = self._segment_for(placement, offset)
        try:
            start = segment.write(placement.buffers, placement.size_bytes)
        except OSError as error:
            self._undo_write(segment)
            raise storage_error(segment.path, error) from error
        for position, size_bytes, last_offset, max_timestamp in placement.batches:
            segment.add(start + position, size_bytes, last_offset, max_timestamp)

    def roll(self, offset: int) -> LogSegment:
        """Finish the active segment and begin the next at the log's end; nothing is synced here. StorageError."""
        with storage_errors(self._segments.directory):
            self._producers.take_snapshot(offset)
            segment = self._segments.begin(offset, self._rolling)
        self._flushing.names_changed = True
        return segment

    def _segment_for(self, placement: Placement, offset: int) -> LogSegment:
        """The active segment, rolled first where the batches don't belong in it."""
        segment_bytes = self._rolling.config.segment_bytes
        if placement.size_bytes > segment_bytes:
            raise RecordTooLargeError(
                f"{placement.size_bytes} bytes in one append are above segment.bytes={segment_bytes}"
            )
        active = self._segments.now.active
        return self.roll(offset) if self._is_due(active, placement) else active

    def _is_due(self, active: LogSegment, placement: Placement) -> bool:
        return self._rolling.is_due(active, placement.size_bytes, placement.last_offset, placement.max_timestamp)

    def _undo_write(self, segment: LogSegment) -> None:
        try:
            segment.undo_write()
        except OSError as error:
            self._health.fail(f"{segment.path}: a failed write could not be undone: {error}")
