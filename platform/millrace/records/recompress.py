"""Compresses a batch again, as a broker does whose topic asks for its own codec (`compression.type`).

Only the codec bits, the length and the CRC change: producer, sequence, times and records stay as they are.
"""

from __future__ import annotations

from millrace.records.batch import (
    CODEC_MASK,
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    compute_crc,
)
from millrace.records.compression import Codec, compress


def recompressed(header: BatchHeader, body: bytes, codec: Codec, level: int | None = None) -> bytes:
    """Returns the batch with this header, of whose records `body` are the bytes, in another codec."""
    block = compress(codec, body, level)
    out = bytearray(HEADER_BYTES + len(block))
    whole = header._replace(
        batch_length=len(out) - LOG_OVERHEAD_BYTES, attributes=header.attributes & ~CODEC_MASK | codec
    )
    HEADER.pack_into(out, 0, *whole)
    out[HEADER_BYTES:] = block
    out[CRC_POSITION : CRC_POSITION + 4] = compute_crc(out, 0, len(out)).to_bytes(4, "big")
    return bytes(out)
