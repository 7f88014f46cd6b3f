"""Zig-zag variable-length integers, as records v2 use them (Protocol Buffers encoding)."""

from __future__ import annotations

from millrace.errors import CorruptRecordError

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10
MAX_UNSIGNED = 2**64 - 1


def encode_varint(value: int) -> bytes:
    """Returns a signed integer of up to 64 bits as one to ten bytes (a zig-zag varint)."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def decode_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Returns (value, position after it); raises CorruptRecordError if the varint is cut short or exceeds 64 bits."""
    result = shift = 0
    for count in range(MAX_VARLONG_BYTES):
        try:
            byte = buffer[position + count]
        except IndexError:
            raise CorruptRecordError(f"variable-length integer at {position} is cut short") from None
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if result > MAX_UNSIGNED:
                break
            return (result >> 1) ^ -(result & 1), position + count + 1
        shift += 7
    raise CorruptRecordError(f"variable-length integer at {position} is longer than 64 bits")
