"""The rules that batches must keep which a follower has fetched from its leader.

| rule | otherwise |
|---|---|
| magic 2, possible sizes and counts | UnsupportedMagicError, CorruptRecordError (`read_header`) |
| CRC-32C matches | CorruptRecordError |
| a known codec | UnsupportedCodecError |
| a transaction's marker can be read | CorruptRecordError, InvalidRecordError (`decode_marker`) |
| offsets increase; compaction may have left some out | InvalidRecordError |
| the batch's leader epoch is not newer than the one that the follower knows (KAFKA-18723) | it ends what is taken |
| the last batch is whole: a leader may cut an answer anywhere | it is left out |

The leader has checked the rest. Sizes have no limit here: the leader may have had other settings when it took the
batches.
"""

from __future__ import annotations

from millrace.errors import InvalidRecordError
from millrace.records.batch import (
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    check_crc,
    read_header,
)
from millrace.records.compression import codec_of
from millrace.records.control import decode_marker


def validate_fetched(batches: memoryview, leader_epoch: int) -> list[tuple[int, BatchHeader]]:
    """Returns (position, header) of each batch to append; raises RecordError for the first rule that is broken."""
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
        if header.is_control and header.producer_id != NO_PRODUCER_ID:
            decode_marker(header, batches[position : position + header.size_bytes])
        found.append((position, header))
        position, next_offset = position + header.size_bytes, header.next_offset
    return found
