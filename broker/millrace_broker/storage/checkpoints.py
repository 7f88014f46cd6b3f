"""Offsets of many partitions in one small text file (Kafka's checkpoint format).

    0                           version
    2                           number of entries
    flights 0 42                topic, partition, offset
    flights 1 17

The file is replaced as a whole (`write_file_durably`), so a crash leaves the old content or the new. Kafka makes an
empty file at its first start and fills it later, so an empty one has no entries.

Kafka's format has no checksum. A start takes the entries that can be read (`salvaged_offsets`), and asks each log
whether they can be true. The checkpoint of log start offsets ends with one entry more, which Kafka passes over, as no
topic can have its name: its offset is the CRC-32C of the lines before (`is_checked`).

    . 0 3632233996
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from millrace.errors import StorageError
from millrace.fs import FileSystem, read_file, write_file_durably
from millrace.records.checksum import crc32c
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import TopicPartition

logger = logging.getLogger(__name__)

VERSION = "0"
_ENTRY_WORDS = 3
_CHECK = TopicPartition(".", 0)


class DamagedCheckpointError(StorageError):
    """Says that a file is no checkpoint, or has an entry that is no topic, partition and offset."""


def read_lines(fs: FileSystem, path: str) -> list[list[str]]:
    """Returns each entry of a checkpoint file as a list of its words; an empty list where there is no file.

    Raises StorageError where it can't be read, DamagedCheckpointError where it is no checkpoint.
    """
    with storage_errors(path):
        try:
            content = read_file(fs, path)
        except FileNotFoundError:
            return []
    if not content:
        return []
    lines = content.decode(errors="replace").splitlines()
    if len(lines) < 2 or lines[0] != VERSION or lines[1] != str(len(lines) - 2):
        raise DamagedCheckpointError(f"{path}: not a checkpoint of version {VERSION} with as many lines as it says")
    return [line.split() for line in lines[2:]]


def encode_lines(lines: Iterable[str]) -> bytes:
    """Returns the bytes of a checkpoint file with these entries, one line each."""
    entries = list(lines)
    return "\n".join([VERSION, str(len(entries)), *entries, ""]).encode()


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Returns the offset of each partition in a checkpoint file; an empty dict where there is no file.

    Raises StorageError where it can't be read, DamagedCheckpointError where it or an entry is malformed.
    """
    try:
        found = {
            TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in read_lines(fs, path)
        }
    except ValueError as error:
        raise DamagedCheckpointError(f"{path}: {error}") from error
    found.pop(_CHECK, None)
    return found


def is_checked(fs: FileSystem, path: str) -> bool:
    """Returns whether a checkpoint is as it was written `with_check`. Raises StorageError where it can't be read.

    Neither Apache Kafka nor a former release writes such a file, and where one of them replaces it, that shows.
    """
    try:
        *lines, check = [" ".join(words) for words in read_lines(fs, path)] or [""]
    except DamagedCheckpointError:
        return False
    return check == _check_line(lines)


def salvaged_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Returns the offsets in a checkpoint file by partition; logs entries that can't be parsed. Raises StorageError."""
    try:
        return read_offsets(fs, path)
    except DamagedCheckpointError as error:
        with storage_errors(path):
            lines = read_file(fs, path).decode(errors="replace").splitlines()
        found = dict(entry for line in lines if (entry := _entry(line)) is not None)
        found.pop(_CHECK, None)
        logger.warning("%s; the %d entries that can be read are taken", error, len(found))
        return found


def _entry(line: str) -> tuple[TopicPartition, int] | None:
    words = line.split()
    if len(words) != _ENTRY_WORDS or not all(word.isascii() and word.isdigit() for word in words[1:]):
        return None
    return TopicPartition(words[0], int(words[1])), int(words[2])


def write_offsets(
    fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int], *, with_check: bool = False
) -> None:
    """Replaces the checkpoint file at `path` by these offsets, synced; raises StorageError."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    if with_check:
        lines.append(_check_line(lines))
    with storage_errors(path):
        write_file_durably(fs, path, encode_lines(lines))


def _check_line(lines: Iterable[str]) -> str:
    crc = crc32c("\n".join(lines).encode())
    return f"{_CHECK.topic} {_CHECK.partition} {crc}"
