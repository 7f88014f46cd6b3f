"""The digest of a data file: the CRC-32C of all its bytes, made while they are written, and kept by the commit.

    task:   bytes ──► CRC ──► file          commit:   add.stats = {"numRecords": …, "crc32c": "0x1f2e3d4c"}

Whoever reads the file later and gets another CRC has other bytes than the task had. A digest stands in the statistics
of the add action, of which Delta's readers take the fields that they know, and checkpoints keep the text
(`delta.adds`). A file that another engine wrote has none, nor has one of an older version.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa

from millrace.records.checksum import crc32c

CHUNK_BYTES = 8 << 20


class DigestingSink(io.RawIOBase):
    """Passes on what is written, and keeps the CRC-32C of it."""

    def __init__(self, sink: pa.NativeFile) -> None:
        self._sink = sink
        self._crc = 0

    @property
    def digest(self) -> str:
        """The digest of what has been written so far."""
        return shown(self._crc)

    def writable(self) -> bool:
        """Returns True."""
        return True

    def write(self, data: Any) -> int:
        """Writes all of it and returns its length."""
        self._crc = crc32c(data, self._crc)
        self._sink.write(data)
        return len(memoryview(data).cast("B"))

    def tell(self) -> int:
        """Returns how many bytes have been written."""
        return int(self._sink.tell())


def shown(crc: int) -> str:
    """Returns a digest as statistics have it."""
    return f"{crc:#010x}"


def digest_of(file: pa.NativeFile) -> str:
    """Returns the digest of a file's bytes from its position on."""
    crc = 0
    while chunk := file.read(CHUNK_BYTES):
        crc = crc32c(chunk, crc)
    return shown(crc)
