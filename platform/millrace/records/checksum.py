"""CRC-32C (RFC 3720), which v2 batches carry: `crc32c(data, value)` continues the checksum `value` over `data`.

The record kernel computes it where it has code for this processor, at twice the rate of the package `crc32c`; the
package does everywhere else.
"""

from __future__ import annotations

from typing import Protocol

from crc32c import crc32c as packaged_crc32c

from millrace.kernel import native


class Checksum(Protocol):
    """A function that computes a checksum piece by piece."""

    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int:
        """Returns the checksum of earlier bytes, whose checksum is `value`, and `data` together."""


crc32c: Checksum = getattr(native, "crc32c", packaged_crc32c)
