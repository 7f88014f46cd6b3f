"""Where appended batches go: into the active segment, or into a new one that is begun for them.

What is placed together is one write. A write that fails leaves the log as it was: what came half-way is cut off again,
and where even that fails the data folder goes offline, since what the file ends with is not known. The epoch of the
first batch of a leader is noted before the log's end moves, so that a flush up to there writes it, too. Belongs to the
log's own thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.records.batch import NO_LEADER_EPOCH
from millrace_broker.storage.batches.placement import Placement
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import is_out_of_descriptors, storage_error
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_broker.storage.log.log_segments import LogSegments, Rolling
from millrace_broker.storage.producers.producer_state_manager import ProducerStateManager
from millrace_broker.storage.segments.segment import LogSegment


class SegmentWriter:
    """Writes at the end of one log's segments."""

    __slots__ = ("_active", "_epochs", "_producers", "_rolling", "_segments")

    def __init__(
        self, segments: LogSegments, rolling: Rolling, producers: ProducerStateManager, epochs: LeaderEpochs
    ) -> None:
        self._segments = segments
        self._active = segments.now.active
        self._rolling = rolling
        self._producers = producers
        self._epochs = epochs

    def reconfigure(self, config: LogConfig) -> None:
        """Takes other settings by which segments are rolled and made."""
        self._rolling.config = config

    @property
    def config(self) -> LogConfig:
        """The settings by which segments are made."""
        return self._rolling.config

    def takes(self, placement: Placement) -> bool:
        """Returns whether the active segment has something, and has room for all that is placed."""
        active = self._active
        fits = active.size_bytes > 0 and len(placement.batches) <= active.index_room
        return fits and not self._rolling.is_due(
            active, placement.size_bytes, placement.last_offset, placement.max_timestamp
        )

    def write(self, placement: Placement, leader_epoch: int, base_offset: int) -> None:
        """Writes what was placed from `base_offset` on, and moves the log's end. Raises StorageError."""
        segments, epochs = self._segments, self._epochs
        begins_epoch = leader_epoch not in (epochs.latest, NO_LEADER_EPOCH)
        if begins_epoch:
            epochs.announce(leader_epoch, base_offset)
        buffers, size_bytes, batches, _, last_offset, max_timestamp = placement
        segment = self._active
        if self._rolling.is_due(segment, size_bytes, last_offset, max_timestamp):
            segment = self.roll()
        try:
            start = segment.write(buffers, size_bytes)
        except OSError as error:
            segments.health.note_refusal(error)
            if not is_out_of_descriptors(error):
                self._undo_write(segment)
            raise storage_error(segment.path, error) from error
        if segments.health.is_full:
            segments.health.note_room()
        for position, batch_end, newest in batches:
            segment.add(start + position, batch_end, newest)
        if begins_epoch:
            epochs.assign(leader_epoch, base_offset)
        segments.end_offset = segment.next_offset

    def roll(self) -> LogSegment:
        """Finishes the active segment and begins the next at the log's end; nothing is synced here.

        Raises StorageError.
        """
        segments = self._segments
        try:
            self._producers.take_snapshot(segments.end_offset)
            self._active = segments.begin(segments.end_offset, self._rolling)
        except OSError as error:
            segments.health.note_refusal(error)
            raise storage_error(segments.directory, error) from error
        return self._active

    def restart(self, kept: Sequence[LogSegment], base_offset: int) -> None:
        """Goes on in a new segment behind those that a truncation has left. Raises OSError."""
        self._active = self._segments.restart(kept, base_offset, self._rolling)

    def _undo_write(self, segment: LogSegment) -> None:
        try:
            segment.undo_write()
        except OSError as error:
            self._segments.health.fail(f"{segment.path}: a failed write could not be undone: {error}")
