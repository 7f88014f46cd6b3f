"""The rule by which the active segment is finished and the next one begun (docs/logs.md).

    segment.bytes     its size would come above it
    segment.ms        its first record is older: by the records' own times, by the clock where they have none;
                      in a compacted topic max.compaction.lag.ms, if it is less
    index             it has no room left, or can't hold the offset

Up to `segment.jitter.ms`, drawn for each segment, is subtracted from `segment.ms`, so that partitions that were made
together do not roll and sync together.
"""

from __future__ import annotations

from random import Random

from millrace.clock import Clock
from millrace.records.batch import NO_TIMESTAMP
from millrace_broker.storage.batches.scan import MAX_RELATIVE_OFFSET
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import is_disk_full
from millrace_broker.storage.segments.segment import LogSegment


class Rolling:
    """The rule for one log; `seed` makes its draws repeatable."""

    __slots__ = ("_begun_at_ms", "_chance", "_clock", "_config", "_jitter_ms", "_roll_ms", "_seed", "segment_bytes")

    def __init__(self, clock: Clock, config: LogConfig, seed: str) -> None:
        self._clock = clock
        self._seed = seed
        self._chance: Random | None = None
        self._begun_at_ms = clock.now_ms()
        self._jitter_ms = 0
        self.config = config

    @property
    def config(self) -> LogConfig:
        """The current settings; they hold for the segment that is active too."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.segment_bytes, self._roll_ms = config.segment_bytes, config.roll_ms

    def resume(self, segment: LogSegment) -> None:
        """Goes on with the active segment found at the start; on a full disk without its room. Raises OSError."""
        try:
            self.begin(segment)
        except OSError as error:
            if not is_disk_full(error):
                raise

    def begin(self, segment: LogSegment) -> None:
        """Makes a new segment the active one; its room is taken if `preallocate` says so. Raises OSError."""
        if self.config.preallocate:
            segment.reserve(self.config.segment_bytes)
        self._begun_at_ms = self._clock.now_ms()
        self._jitter_ms = self._drawn(min(self.config.segment_jitter_ms, self._roll_ms))

    def _drawn(self, up_to_ms: int) -> int:
        if not up_to_ms:
            return 0
        self._chance = self._chance or Random(self._seed)  # noqa: S311 -- it spreads load and keeps no secret
        return self._chance.randint(0, up_to_ms)

    def is_due(self, active: LogSegment, size_bytes: int, last_offset: int, max_timestamp: int) -> bool:
        """Returns whether `size_bytes` more, up to an offset and a timestamp, belong in a new segment."""
        active_bytes, began_ms = active.size_bytes, active.first_timestamp
        if not active_bytes:
            return False
        age_ms = max_timestamp - began_ms if began_ms != NO_TIMESTAMP else self._clock.now_ms() - self._begun_at_ms
        return (
            active_bytes + size_bytes > self.segment_bytes
            or age_ms > self._roll_ms - self._jitter_ms
            or active.is_index_full
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        )
