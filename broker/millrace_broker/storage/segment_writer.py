"""Where appended batches go: into the active segment, or into a new one that is begun for them (spec B2).

What is placed together is one write. What fails leaves the log as it was: a write that came half-way is cut off again,
and where even that fails the data folder goes offline, since what the file ends with is not known. Belongs to the log's
own thread.
"""

from __future__ import annotations

from millrace.errors import RecordTooLargeError
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import is_out_of_descriptors, storage_error
from millrace_broker.storage.flushing import Flushing
from millrace_broker.storage.health import DirHealth
from millrace_broker.storage.log_segments import LogSegments
from millrace_broker.storage.placement import Placement
from millrace_broker.storage.producer_state_manager import ProducerStateManager
from millrace_broker.storage.rolling import Rolling
from millrace_broker.storage.segment import LogSegment


class SegmentWriter:
    """Writes at the end of one log's segments."""

    __slots__ = ("_active", "_flushing", "_health", "_producers", "_rolling", "_segments")

    def __init__(
        self,
        segments: LogSegments,
        rolling: Rolling,
        producers: ProducerStateManager,
        flushing: Flushing,
        health: DirHealth,
    ) -> None:
        self._segments = segments
        self._active = segments.now.active
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
        active = self._active
        fits = active.size_bytes > 0 and len(placement.batches) <= active.index_room
        return fits and not self._rolling.is_due(
            active, placement.size_bytes, placement.last_offset, placement.max_timestamp
        )

    def write(self, placement: Placement, offset: int) -> int:
        """Write what was placed from `offset` on; the log's end after it. RecordTooLargeError, StorageError."""
        buffers, size_bytes, batches, _, last_offset, max_timestamp = placement
        if size_bytes > self._rolling.segment_bytes:
            raise RecordTooLargeError(
                f"{size_bytes} bytes in one append are above segment.bytes={self._rolling.segment_bytes}"
            )
        segment = self._active
        if self._rolling.is_due(segment, size_bytes, last_offset, max_timestamp):
            segment = self.roll(offset)
        try:
            start = segment.write(buffers, size_bytes)
        except OSError as error:
            self._health.note_refusal(error)
            if not is_out_of_descriptors(error):
                self._undo_write(segment)
            raise storage_error(segment.path, error) from error
        for position, batch_end, newest in batches:
            segment.add(start + position, batch_end, newest)
        return segment.next_offset

    def roll(self, offset: int) -> LogSegment:
        """Finish the active segment and begin the next at the log's end; nothing is synced here. StorageError."""
        try:
            self._producers.take_snapshot(offset)
            self._active = self._segments.begin(offset, self._rolling)
        except OSError as error:
            self._health.note_refusal(error)
            raise storage_error(self._segments.directory, error) from error
        self._flushing.names_changed = True
        return self._active

    def _undo_write(self, segment: LogSegment) -> None:
        try:
            segment.undo_write()
        except OSError as error:
            self._health.fail(f"{segment.path}: a failed write could not be undone: {error}")
