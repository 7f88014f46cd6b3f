"""CRC-32C (RFC 3720), which v2 batches carry: `crc32c(data, value)` takes that of what came before on over `data`.

By the record kernel where that has a way for this processor, at twice the rate of the package `crc32c`; by the package
everywhere else.
"""

from __future__ import annotations

from typing import Protocol

from crc32c import crc32c as packaged_crc32c

from millrace.kernel import native


class Checksum(Protocol):
    """Adds bytes to a checksum."""

    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int:
        """The checksum of what `value` is that of, and then `data`."""
        ...


crc32c: Checksum = getattr(native, "crc32c", packaged_crc32c)
