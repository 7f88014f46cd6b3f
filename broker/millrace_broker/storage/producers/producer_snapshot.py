"""`<offset>.snapshot`: what a log knows of its producers before `offset` (Kafka's format, docs/formats/producers.md).

    file    := version i16 = 1, crc u32, count i32, entry*        crc: CRC-32C of all that follows it
    entry   := producer id i64, producer epoch i16, last sequence i32, last offset i64, offset delta i32,
               timestamp i64, coordinator epoch i32, first offset of the open transaction i64

-1 stands for no sequence, offset, epoch or transaction. Five batches are known in memory, and only the last of them is
written here. A crash may leave a file that is cut short or full of zeros. `decode_snapshot` refuses it, and the state
is rebuilt from an older one. A snapshot is never the only copy of what the log still holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from millrace.errors import CorruptRecordError
from millrace.records.batch import NO_OFFSET
from millrace.records.checksum import crc32c
from millrace_broker.storage.producers.producer_state import BatchMetadata, ProducerEntry

VERSION = 1
_START = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Returns the bytes of the file."""
    packed = [_pack(entry) for entry in entries]
    body = b"".join([_COUNT.pack(len(packed)), *packed])
    return _START.pack(VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """Returns the entries; raises CorruptRecordError for bytes that are no snapshot of this version."""
    head_bytes = _START.size + _COUNT.size
    if len(content) < head_bytes:
        raise CorruptRecordError(f"{len(content)} bytes are no producer snapshot")
    version, crc = _START.unpack_from(content)
    (count,) = _COUNT.unpack_from(content, _START.size)
    if version != VERSION:
        raise CorruptRecordError(f"a producer snapshot of version {version}, expected {VERSION}")
    if crc32c(content[_START.size :]) != crc:
        raise CorruptRecordError("the CRC-32C of the producer snapshot does not match")
    if len(content) - head_bytes != count * _ENTRY.size:
        raise CorruptRecordError(f"a producer snapshot of {count} entries in {len(content)} bytes")
    return [_unpack(fields) for fields in _ENTRY.iter_unpack(content[head_bytes:])]


def _pack(entry: ProducerEntry) -> bytes:
    delta = entry.batches[-1].offset_delta if entry.batches else 0
    return _ENTRY.pack(
        entry.producer_id, entry.epoch, entry.last_sequence, entry.last_offset, delta,
        entry.last_timestamp, entry.coordinator_epoch, entry.transaction_first_offset,
    )  # fmt: skip


def _unpack(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_first_offset = fields
    return ProducerEntry(
        producer_id=producer_id,
        epoch=epoch,
        batches=(BatchMetadata(sequence, offset, delta, timestamp),) if offset >= 0 else (),
        last_timestamp=timestamp,
        coordinator_epoch=coordinator_epoch,
        transaction_first_offset=max(transaction_first_offset, NO_OFFSET),
    )
