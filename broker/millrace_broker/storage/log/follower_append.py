"""Appending as a follower: batches go into the log as the leader has them, at their own offsets and leader epochs.

    log end offset 120
    fetched         [120 … 129 epoch 4][133 … 140 epoch 4][141 … 150 epoch 5]
    written as two runs                                    |  epoch 5 begins at 141

Nothing is encoded again. What compaction has left out at the leader is left out here too; where the leader says that it
leaves out nothing from an offset on, a gap there is damage of the leader (InvalidRecordError), and is not taken over.
A leader of another make, or of release 0.1, says nothing, and its gaps are accepted. The sequences of producers
are noted, not checked. The first batch may begin below the log end offset only where the log is empty and the batch
holds that offset: the leader's records up to there were deleted, and the batch was not (KAFKA-6975).

Where files have to be changed first, and be synced, an append on the event loop is refused: one with a gap that the
log's file does not allow yet (`offset_gaps`), one that begins below the log's end, one after a full disk that kept
epochs in their file. A worker makes it, which has the log for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from millrace.errors import InvalidRecordError, StorageError
from millrace.fs import Buffer
from millrace.records.batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    read_header,
)
from millrace.records.compression import codec_of
from millrace.records.control import decode_marker, decode_mirror_end
from millrace_broker.storage.batches.placement import Batches, LogAppendInfo, Placement
from millrace_broker.storage.batches.scan import MAX_RELATIVE_OFFSET
from millrace_broker.storage.failures import AppendWaitsError
from millrace_broker.storage.log.truncation import Truncation
from millrace_broker.storage.recovery.offset_gaps import ANYWHERE


def validate_fetched(batches: memoryview, leader_epoch: int) -> list[tuple[int, BatchHeader]]:
    """Returns (position, header) of each batch to append; raises RecordError for the first rule that is broken.

    | rule | otherwise |
    |---|---|
    | magic 2, possible sizes and counts | UnsupportedMagicError, CorruptRecordError (`read_header`) |
    | CRC-32C matches | CorruptRecordError |
    | a known codec | UnsupportedCodecError |
    | a control batch can be read | CorruptRecordError, InvalidRecordError (`decode_marker`) |
    | offsets increase; whether some may be left out, `append` decides | InvalidRecordError |
    | the batch's leader epoch is not newer than the one that the follower knows (KAFKA-18723) | it ends what is taken |
    | the last batch is whole: a leader may cut an answer anywhere | it is left out |

    The leader has checked the rest. Sizes have no limit here: the leader may have had other settings when it took the
    batches.
    """
    found: list[tuple[int, BatchHeader]] = []
    position, end, next_offset = 0, len(batches), 0
    while end - position >= HEADER_BYTES:
        header = read_header(batches, position)
        if header.size_bytes > end - position or NO_LEADER_EPOCH < leader_epoch < header.partition_leader_epoch:
            break
        check_crc(batches, position, header)
        codec_of(header.codec_id)
        if header.base_offset < next_offset:
            raise InvalidRecordError(f"a batch at offset {header.base_offset} behind one that ends at {next_offset}")
        if header.is_control:
            decode = decode_mirror_end if header.producer_id == NO_PRODUCER_ID else decode_marker
            decode(header, batches[position : position + header.size_bytes])
        found.append((position, header))
        position, next_offset = position + header.size_bytes, header.next_offset
    return found


class FollowerAppend(Truncation):
    """Appends what was fetched from the leader to a follower's log, and cuts off what the leader lacks."""

    __slots__ = ()

    def append(
        self, batches: Buffer, leader_epoch: int, *, may_wait: bool, gapless_from: int | None
    ) -> LogAppendInfo | None:
        """Appends fetched batches and returns their offsets, None without any (see `Log.append_as_follower`)."""
        self._segments.check_writable(by_holder=may_wait)
        view = memoryview(batches)
        found = validate_fetched(view, leader_epoch)
        if not found:
            return None
        end_offset = self._segments.end_offset
        first_offset = found[0][1].base_offset
        begins_below = first_offset < end_offset
        if begins_below:
            self._check_begins_below(end_offset, found[0][1])
        gaps, gaps_end = self._segments.gaps, _end_of_gaps(found, min(first_offset, end_offset), gapless_from)
        is_new_gap = gaps_end > gaps.allowed_below
        if not may_wait and (begins_below or is_new_gap or self._epochs.is_behind):
            raise AppendWaitsError(f"{self._segments.topic_partition}: files are changed before this append")
        if begins_below:
            self.start_at(first_offset, log_start_offset=end_offset)
        self._epochs.catch_up()
        if is_new_gap:
            gaps.allow(ANYWHERE if gapless_from is None else max(gaps_end, gapless_from))
        gaps.note(gaps_end)
        try:
            for epoch, run in groupby(found, key=lambda each: each[1].partition_leader_epoch):
                self._append_run(view, list(run), epoch)
        except StorageError:
            if self._segments.end_offset < end_offset:
                self.start_at(end_offset, end_offset)
            raise
        self._flushing.put_if_owed()
        newest = max(header.max_timestamp for _, header in found)
        return LogAppendInfo(first_offset, found[-1][1].last_offset, NO_TIMESTAMP, max(newest, NO_TIMESTAMP))

    def _check_begins_below(self, end_offset: int, first: BatchHeader) -> None:
        """Raises InvalidRecordError unless the log is empty and its end offset lies within this first batch."""
        segments = self._segments
        if segments.start_offset < end_offset or first.next_offset <= end_offset:
            raise InvalidRecordError(
                f"{segments.topic_partition}: a batch at offset {first.base_offset} where {end_offset} is the next"
            )

    def _append_run(self, view: memoryview, run: Batches, epoch: int) -> None:
        """Appends batches of one leader epoch, in one write if the active segment takes them all."""
        placement = _as_they_are(view, run)
        if len(run) == 1 or self._writer.takes(placement):
            self._write(view, run, placement, epoch)
        else:
            for batch in run:
                self._write(view, [batch], _as_they_are(view, [batch]), epoch)

    def _write(self, view: memoryview, run: Batches, placement: Placement, epoch: int) -> None:
        base_offset = run[0][1].base_offset
        if placement.last_offset - self._segments.end_offset > MAX_RELATIVE_OFFSET:
            self._go_on_at(base_offset)
        self._writer.write(placement, epoch, base_offset)
        note_aborted = self._segments.now.active.transaction_index.append
        for position, header in run:
            if header.producer_id != NO_PRODUCER_ID or header.attributes & CONTROL_FLAG:
                self._producers.append_fetched(header, view[position : position + header.size_bytes], note_aborted)

    def _go_on_at(self, offset: int) -> None:
        """Begins a segment at `offset`, which is too far above the log's end for the active segment's index."""
        end_offset, self._segments.end_offset = self._segments.end_offset, offset
        try:
            self._writer.roll()
        except StorageError:
            self._segments.end_offset = end_offset
            raise


def _end_of_gaps(found: Batches, next_offset: int, gapless_from: int | None) -> int:
    """Returns the end of the last gap between batches, the first of which is to have `next_offset`; 0 without one.

    Raises InvalidRecordError for a gap at or above `gapless_from`, the offset from which on the leader has none.
    """
    end = 0
    for _, header in found:
        if header.base_offset != next_offset:
            end = header.base_offset
            if gapless_from is not None and end > gapless_from:
                raise InvalidRecordError(
                    f"the leader leaves out offsets {next_offset} to {end - 1}, and neither compaction nor a repair "
                    f"has removed any from {gapless_from} on"
                )
        next_offset = header.next_offset
    return end


def _as_they_are(view: memoryview, run: Sequence[tuple[int, BatchHeader]]) -> Placement:
    """Returns the bytes to write for neighbouring batches: one piece, with the offsets that they have."""
    start, (last_position, last) = run[0][0], run[-1]
    end = last_position + last.size_bytes
    newest = NO_TIMESTAMP
    batches: list[tuple[int, int, int]] = []
    for position, header in run:
        newest = max(newest, header.max_timestamp)
        batches.append((position - start, header.last_offset, newest))
    return Placement([view[start:end]], end - start, batches, [], last.last_offset, newest)
