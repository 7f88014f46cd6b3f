"""What a fetch brings of one partition: its batches, and where its log begins and ends.

An answer holds whole batches as they lie in the log, the first of which may begin below the asked offset, the last
of which may be cut short. Where its batches are no such thing, because a base offset or a length is damaged, reading
them raises an error (`records.intervals`); where offsets are absent, each batch says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.answers import check
from millrace.errors import ClientError, ErrorCode, RecordError
from millrace.records.batch import LOG_OVERHEAD_BYTES, BatchHeader, check_crc, walk
from millrace.records.bodies import BODY_BYTES, bodies_of
from millrace.records.control import AbortedTransactions
from millrace.records.intervals import Interval, rising
from millrace.records.record import Record, records_of

if TYPE_CHECKING:
    from millrace.wire.messages.fetch import FetchResponse, PartitionData


class IsolationLevel(IntEnum):
    """Which records of transactions are read: all, or only committed ones, up to the last stable offset (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchThrottledError(ClientError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, retriable=True):
    """A quota holds the client up: the answer to its fetch is empty, and so is the next one until the quota's time."""


def left_out(answer: FetchResponse, subject: str) -> ClientError:
    """Returns the error of a partition that an answer says nothing of, which a quota's empty answer does (KIP-219).

    The broker reads the connection's next request once the time of the quota is over, so it can be sent at once.
    """
    if answer.throttle_time and not answer.responses:
        return FetchThrottledError(f"{subject}: the broker holds it up by a quota")
    return ClientError(f"{subject}: the broker's answer leaves it out")


class AbortedTransaction(NamedTuple):
    """A producer's transaction that was aborted, from its first offset on to the producer's next abort marker."""

    producer_id: int
    first_offset: int


class FetchedData(NamedTuple):
    """The response to a fetch of one partition: the bytes of batches, and where the log begins and ends.

    `aborted` are the aborted transactions among the batches, if committed records were asked for; `asked_offset` is
    the offset from which was fetched, and `subject` names the fetch in errors.
    """

    records: bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()
    asked_offset: int = 0
    subject: str = "a fetch"

    def end_offset(self, isolation: IsolationLevel) -> int:
        """Returns the offset after the last record that may be read: the high watermark, or the last stable offset."""
        return self.last_stable_offset if isolation == IsolationLevel.READ_COMMITTED else self.high_watermark

    def batches(self, *, goes_on: bool = False) -> Iterator[FetchedBatch]:
        """Yields each whole batch; an incomplete one at the end is left out.

        Control and aborted batches yield no records. Raises CorruptRecordError where the offsets of batches do not
        rise from `asked_offset` on; `goes_on` says that a batch that was read before ends exactly there.
        """
        filter_ = AbortedTransactions(self.aborted)
        view, expected = memoryview(self.records), self.asked_offset
        try:
            for position, header in rising(walk(view), expected, goes_on=goes_on):
                batch = view[position : position + header.size_bytes]
                is_passed_over = filter_.has_aborted(header, batch) or header.is_control
                yield FetchedBatch(header, batch, is_passed_over, _absent(header, expected), self.subject)
                expected = header.next_offset
        except RecordError as error:
            raise _named(self.subject, error) from error

    def messages(self, from_offset: int = 0) -> Iterator[Record]:
        """Yields the records from `from_offset` on, batch by batch; raises RecordError for a damaged batch."""
        for batch in self.batches():
            for record in batch.records():
                if record.offset >= from_offset:
                    yield record


class FetchedBatch(NamedTuple):
    """A batch as it was fetched; its records are decoded only when asked for.

    `absent` is None where no offset is missing. It has the missing offsets between the batch before and this one; or
    all offsets of this batch, where the batch lacks some of its own records.
    """

    header: BatchHeader
    data: memoryview
    is_passed_over: bool
    absent: Interval | None = None
    subject: str = "a fetch"

    @property
    def lacks_records(self) -> bool:
        """Whether some of the batch's own offsets have no record."""
        return self.absent is not None and self.absent.until_offset == self.header.next_offset

    def records(self) -> Iterator[Record]:
        """Returns the batch's records, its CRC checked; none for a control batch or one of an aborted transaction."""
        return chain.from_iterable(self.record_lists())

    def record_lists(self) -> Iterator[list[Record]]:
        """Yields the batch's records in lists, decompressed piece by piece, since a whole batch may be huge."""
        try:
            check_crc(self.data, 0, self.header)
            if not self.is_passed_over:
                for body in bodies_of(self.header, self.data, BODY_BYTES):
                    yield records_of(*body)
        except RecordError as error:
            raise _named(self.subject, error) from error


def _named(subject: str, error: RecordError) -> RecordError:
    return type(error)(f"{subject}: {error}")


def _absent(header: BatchHeader, expected: int) -> Interval | None:
    if header.base_offset > expected:
        return Interval(expected, header.base_offset)
    lacks_some = not header.is_control and header.record_count <= header.last_offset_delta
    return Interval(header.base_offset, header.next_offset) if lacks_some else None


def starts_with_cut_batch(records: bytes) -> bool:
    """Returns whether the bytes begin with a batch that is incomplete."""
    if len(records) < LOG_OVERHEAD_BYTES:
        return bool(records)
    return len(records) < LOG_OVERHEAD_BYTES + int.from_bytes(records[8:LOG_OVERHEAD_BYTES], "big")


def fetched_data(partition: PartitionData, subject: str, asked_offset: int) -> FetchedData:
    """Returns one partition of a decoded Fetch response; raises the BrokerError of its error code."""
    check(partition.error_code, subject)
    return FetchedData(
        partition.records or b"",
        int(partition.high_watermark),
        int(partition.last_stable_offset),
        int(partition.log_start_offset),
        tuple(AbortedTransaction(one.producer_id, one.first_offset) for one in partition.aborted_transactions or ()),
        asked_offset,
        subject,
    )
