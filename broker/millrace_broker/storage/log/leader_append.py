"""Appending as the leader of a partition: what is sent is checked, gets the next offsets, and is written.

What came together is written together: a run of valid appends is one write, as long as the active segment has room for
it. An append that is invalid fails alone. A run has batches of at most one idempotent producer, each following on the
one before, so that the first batch's check holds for all of them.

Belongs to the log's own thread. This is the hottest path of the broker: each call per batch that is added here shows in
`millrace bench storage`.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.clock import Clock
from millrace.config import MAX_INT, MAX_LONG
from millrace.errors import InvalidRecordError, MillraceError, RecordTooLargeError
from millrace.fs import Buffer
from millrace.records.batch import CODEC_MASK, HEADER, NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader, read_header
from millrace.records.compression import Codec
from millrace.records.control import decode_marker
from millrace.records.record_check import check_in_place, is_valid_batch
from millrace_broker.storage.batches.placement import Append, Batches, LogAppendInfo, only_place, place
from millrace_broker.storage.batches.preparation import (
    Prepared,
    asks_of_records,
    codec_of_topic,
    finished,
    prepare_found,
    stamped,
    validate_produced,
)
from millrace_broker.storage.config import LOG_APPEND_TIME, LogConfig
from millrace_broker.storage.log.flushing import Flushing
from millrace_broker.storage.log.log_segments import LogSegments, SegmentWriter
from millrace_broker.storage.producers.producer_state import Turn, next_turn
from millrace_broker.storage.producers.producer_state_manager import ProducerStateManager

AppendOutcome = LogAppendInfo | MillraceError


class LeaderAppend:
    """Appends to the leader's log what producers and coordinators send."""

    __slots__ = (
        "_clock", "_config", "_flushing", "_keeps_plain", "_producers", "_segments", "_stamps_append_time",
        "_takes_any_record", "_writer",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 -- the parts of a log, wired once
        self,
        clock: Clock,
        segments: LogSegments,
        writer: SegmentWriter,
        producers: ProducerStateManager,
        flushing: Flushing,
        config: LogConfig,
    ) -> None:
        self._clock = clock
        self._segments = segments
        self._writer = writer
        self._producers = producers
        self._flushing = flushing
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        """Sets the log's settings, which hold from the next append on."""
        self._config = config
        codec = codec_of_topic(config)
        self._keeps_plain = codec is None or codec is Codec.NONE
        self._takes_any_record = codec is None and not asks_of_records(config)
        self._stamps_append_time = config.message_timestamp_type == LOG_APPEND_TIME

    def append_all(self, appends: Sequence[Buffer | Prepared], leader_epoch: int) -> Sequence[AppendOutcome]:
        """Appends batches of several requests in order; returns for each its offsets or the error."""
        outcomes: list[AppendOutcome] = []
        run: list[Append] = []
        turn: Turn | None = None  # of the batch that goes on with the run; a run without a producer has none
        segments, health, max_message_bytes = self._segments, self._segments.health, self._config.max_message_bytes
        takes_any_record = self._takes_any_record
        for batches in appends:
            try:
                if health.reason is not None or segments.is_closed or segments.is_held:
                    segments.check_writable()
                if isinstance(batches, Prepared):
                    view, found = batches.view, batches.found
                else:
                    view = memoryview(batches)
                    if takes_any_record and len(view) <= max_message_bytes and is_valid_batch(view):
                        # As nearly all are: nothing more needs to be looked at.
                        found = [(0, tuple.__new__(BatchHeader, HEADER.unpack_from(view)))]
                    else:
                        view, found = self._checked(view, validate_produced(view, max_message_bytes))
            except MillraceError as error:
                outcomes += [*self._append_run(run, leader_epoch, turn), error]
                run, turn = [], None
                continue
            # `turn_of` and `next_turn`, in place: a call costs more than what it does.
            _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, epoch, sequence, _ = header = found[0][1]
            is_plain = producer_id == NO_PRODUCER_ID
            if turn is not None if is_plain else turn != (producer_id, epoch, attributes, sequence):
                if run:
                    outcomes += self._append_run(run, leader_epoch, turn)
                run, turn = [], None
                if not is_plain and (settled := self._producers.settled(header)) is not None:
                    outcomes.append(settled)
                    continue
            run.append((view, found))
            if not is_plain:
                turn = producer_id, epoch, attributes, (sequence + last_offset_delta + 1) & MAX_INT
        outcomes += self._append_run(run, leader_epoch, turn)
        return outcomes

    def _checked(self, view: memoryview, found: Batches) -> Append:
        """Returns the batches after a check, recompressed if the topic's codec is another; raises RecordError."""
        for position, header in found:
            if (
                header.attributes & CODEC_MASK
                or not self._takes_any_record
                or check_in_place(view, position, header) != header.max_timestamp
            ):
                prepared = finished(prepare_found(view, found, self._config, self._clock.now_ms()))
                return prepared.view, prepared.found
        return view, found

    def _append_run(self, run: Sequence[Append], leader_epoch: int, turn: Turn | None) -> Sequence[AppendOutcome]:
        """Appends checked batches, in one write if the active segment takes all; returns each one's outcome.

        `turn` is the (producer id, epoch, attributes, sequence) that the next batch of their idempotent producer must
        have; None where no batch has a producer id.
        """
        if not run:
            return []
        sent = run
        if self._stamps_append_time:
            now_ms = self._clock.now_ms()
            run = [stamped(view, found, now_ms) for view, found in sent]
        offset = self._segments.end_offset
        placement = place(run, offset, leader_epoch)
        if placement.size_bytes > self._config.segment_bytes and len(run) == 1:
            size_bytes, limit = placement.size_bytes, self._config.segment_bytes
            return [RecordTooLargeError(f"{size_bytes} bytes in one append are above segment.bytes={limit}")]
        if len(run) > 1 and not self._writer.takes(placement):
            one_by_one = [Prepared(view, found, len(view)) for view, found in sent]
            return [outcome for batches in one_by_one for outcome in self.append_all((batches,), leader_epoch)]
        try:
            self._writer.write(placement, leader_epoch, offset)
            if turn is not None:
                self._producers.append_run(run, placement.appends, turn)
            if self._flushing.commit_limit < MAX_LONG:
                self._flushing.put_if_owed()
        except MillraceError as error:
            return [error] * len(run)
        if self._stamps_append_time:
            return [info._replace(log_append_time_ms=now_ms) for info in placement.appends]
        return placement.appends

    def append_as_coordinator(self, batches: Buffer, leader_epoch: int) -> LogAppendInfo:
        """Appends what a group or transaction coordinator writes; checks producers' epochs, but not sequences."""
        self._segments.check_writable()
        view = memoryview(batches)
        header = read_header(view)
        if header.is_control:
            return self._append_marker(view, header, leader_epoch)
        if header.producer_id == NO_PRODUCER_ID:
            if self._keeps_plain and len(view) <= self._config.max_message_bytes and is_valid_batch(view):
                # Its records were encoded by this broker: the topic's rules for them are for what others send.
                return only_place(self.append_all((Prepared(view, [(0, header)], len(view)),), leader_epoch))
            return only_place(self.append_all((batches,), leader_epoch))
        found = validate_produced(view, self._config.max_message_bytes)
        self._producers.check_epoch(header)
        return only_place(self._append_run([(view, found)], leader_epoch, next_turn(header)))

    def _append_marker(self, view: memoryview, header: BatchHeader, leader_epoch: int) -> LogAppendInfo:
        """Appends the marker that ends a producer's transaction; an abort is added to the transaction index."""
        marker = decode_marker(header, view)
        if marker is None:
            raise InvalidRecordError("the control batch ends no transaction")
        self._producers.check_marker(header.producer_id, header.producer_epoch, marker)
        offset = self._segments.end_offset
        self._writer.write(place([(view, [(0, header)])], offset, leader_epoch), leader_epoch, offset)
        self._producers.append_marker(header, marker, offset, self._segments.now.active.transaction_index.append)
        self._flushing.put_if_owed()
        return LogAppendInfo(offset, offset, NO_TIMESTAMP, header.max_timestamp)
