"""The format of `damaged-ranges` and `repaired-ranges`: lines of text that a checksum covers.

    version: 0
    ...
    crc32c: 5a1cfe03        of all lines before, in hexadecimal digits

A file is replaced as a whole, durably; one without lines is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem, read_file, write_file_durably
from millrace.records.checksum import crc32c

VERSION = "version: 0"
_CRC = "crc32c: "


def read_lines(fs: FileSystem, path: str) -> list[str]:
    """Returns the lines between version and checksum, none without a file. Raises CorruptRecordError or OSError."""
    try:
        content = read_file(fs, path)
    except FileNotFoundError:
        return []
    try:
        return _parse(content.decode())
    except (UnicodeDecodeError, ValueError) as error:
        raise CorruptRecordError(f"{path}: {error}") from error


def write_lines(fs: FileSystem, path: str, lines: Sequence[str]) -> None:
    """Replaces the file, or removes it where there are no lines. Raises OSError.

    The removal is not synced: whoever reads the file again compares it with the segments.
    """
    if lines:
        content = "".join(f"{line}\n" for line in (VERSION, *lines))
        write_file_durably(fs, path, f"{content}{_CRC}{crc32c(content.encode()):08x}\n".encode())
    elif fs.exists(path):
        fs.unlink(path)


def _parse(text: str) -> list[str]:
    content, _, crc = text.rpartition(_CRC)
    if crc != f"{crc32c(content.encode()):08x}\n":
        raise ValueError("the CRC-32C does not match")
    version, *lines = content.splitlines()
    if version != VERSION:
        raise ValueError(f"{version!r} where {VERSION!r} is expected")
    return lines
