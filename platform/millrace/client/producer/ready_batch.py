"""A record batch that is there already, sent as it is: its records are neither decoded nor compressed again.

    new, of the log             base offset, leader epoch
    new, of its producer        producer id and epoch, base sequence, transactional flag
    cleared, of compaction      delete horizon flag; timestamps stay deltas from the same base timestamp
    computed again              CRC
    as they are                 codec, timestamps, records

It can't be split: one that a broker finds too large fails as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.client.producer.batch import Batch
from millrace.errors import InvalidRecordError, RecordError
from millrace.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
    sealed_batch,
)
from millrace.records.compression import Codec, codec_of


@dataclass(slots=True, eq=False, kw_only=True)
class ReadyBatch(Batch):
    """A batch whose bytes are ready. Its report is that of its first record, with the largest timestamp of all."""

    header: BatchHeader

    @property
    def may_be_split(self) -> bool:
        """False: the batch is sent whole or not at all."""
        return False

    @property
    def subject(self) -> str:
        """What errors are about: the partition, and how large the batch is."""
        return f"produce to {self.name} of a ready batch of {self.size_bytes} bytes"

    def timestamp_of(self, index: int) -> int:  # noqa: ARG002 -- the records are never decoded
        """Returns the largest timestamp of the batch's records, in milliseconds."""
        return self.header.max_timestamp

    def encode(self, codec: Codec) -> bytes:  # noqa: ARG002 -- the records have their codec
        """Returns the batch's bytes, with its identity and sequence."""
        header = self.header._replace(
            base_offset=0,
            partition_leader_epoch=NO_LEADER_EPOCH,
            attributes=self.header.codec_id | (TRANSACTIONAL_FLAG if self.identity.is_transactional else 0),
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
        )
        return sealed_batch(header, self._body)


def checked_header(topic: str, partition: int, batch: Buffer) -> BatchHeader:
    """Returns the header of a batch that may be sent as it is; raises RecordError, which says what is wrong with it."""
    try:
        if len(batch) < HEADER_BYTES:
            raise InvalidRecordError(f"{len(batch)} bytes are no batch, whose header alone has {HEADER_BYTES}")
        header = read_header(batch)
        if header.size_bytes != len(batch):
            raise InvalidRecordError(f"{len(batch)} bytes are not one batch: its header says {header.size_bytes}")
        check_crc(batch, 0, header)
        codec_of(header.attributes & CODEC_MASK)
        _check_content(header)
    except RecordError as error:
        raise type(error)(f"a batch for {topic}-{partition} is not sent: {error}") from error
    return header


def _check_content(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecordError("it is a control batch, which only brokers write")
    if header.is_log_append_time:
        raise InvalidRecordError("its times are of log append; millrace.records.rebatch gives each record that time")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"it has {header.record_count} records for {header.last_offset_delta + 1} offsets; "
            "millrace.records.rebatch closes the gaps"
        )
