"""Compresses a batch again, as a broker does whose topic asks for its own codec (`compression.type`).

Only the codec bits, the length and the CRC change: producer, sequence, times and records stay as they are.
"""

from __future__ import annotations

from millrace.errors import InvalidRecordError
from millrace.records.batch import (
    CODEC_MASK,
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    check_crc,
    compute_crc,
)
from millrace.records.compression import DECOMPRESSED_LIMIT_BYTES, Codec, compress
from millrace.records.record import decompress_body


def recompressed(
    batch: memoryview,
    header: BatchHeader,
    codec: Codec,
    level: int | None = None,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> bytes:
    """Returns the batch, whose bytes `batch` are exactly, in another codec; RecordError where it can't be read."""
    check_crc(batch, 0, header)
    if header.is_control:
        raise InvalidRecordError("a producer may not send control batches")
    body = compress(codec, decompress_body(header, batch, limit_bytes), level)
    out = bytearray(HEADER_BYTES + len(body))
    whole = header._replace(
        batch_length=len(out) - LOG_OVERHEAD_BYTES, attributes=header.attributes & ~CODEC_MASK | codec
    )
    HEADER.pack_into(out, 0, *whole)
    out[HEADER_BYTES:] = body
    out[CRC_POSITION : CRC_POSITION + 4] = compute_crc(out, 0, len(out)).to_bytes(4, "big")
    return bytes(out)
