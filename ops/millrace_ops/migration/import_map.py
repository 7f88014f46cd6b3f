"""The map of an import of Kafka 0.7 logs: which position became which offset, batch by batch.

    {"topic": "t", "topic_id": "…", "directory": "/old", "source_topic": "t"}          what is imported into what
    {"partition": 0, "position": 0, "payload": 0, "offset": 0, "records": 812}         a batch, before it is sent

`position` is that of the message with the batch's first record, `payload` the number of that record in the message,
which has several where it is compressed. An entry is on the disk before its batch is sent, so that an import that was
stopped at any point goes on: only the last batch of each partition may or may not be in the topic, and the end of the
topic's log says which. By the entries, and the 0.7 log itself, a position of a consumer group becomes an offset.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from millrace.errors import LogError, SetupError
from millrace.fs import FileSystem, read_file
from millrace_ops.migration.legacy_log import LegacyPartition, Payloads, read_partition


class Batch(NamedTuple):
    """An entry of the map: where a batch's first record was, and the offsets of its records."""

    partition: int
    position: int
    payload: int
    offset: int
    records: int

    @property
    def next_offset(self) -> int:
        """Returns the offset behind the batch."""
        return self.offset + self.records


class Subject(NamedTuple):
    """What the map is of; with another topic of the same name, or other logs, an import does not go on."""

    topic: str
    topic_id: str | None
    directory: str
    source_topic: str


class ImportMap:
    """The map of one import, in a file that is opened to go on with; a context manager.

    Raises SetupError for a file that is the map of something else, or no map.
    """

    def __init__(self, fs: FileSystem, path: str, subject: Subject) -> None:
        self._fs = fs
        self._path = path
        self._subject = subject
        self.batches: list[Batch] = []

    def __enter__(self) -> Self:
        is_new = not self._fs.exists(self._path)
        self._fd = self._fs.open(self._path, create=True)
        try:
            self._lock()
            self._end = 0
            if is_new or not self._fs.size(self._fd):
                self._write(self._subject._asdict())
                self._fs.fsync_dir(os.path.dirname(os.path.abspath(self._path)))
            else:
                self._take_up()
        except BaseException:
            self._fs.close(self._fd)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._fs.close(self._fd)

    def last(self, partition: int) -> Batch | None:
        """Returns the batch of a partition that was sent last; None for none."""
        return next((one for one in reversed(self.batches) if one.partition == partition), None)

    def add(self, batch: Batch) -> None:
        """Adds a batch, durably; it may be sent then."""
        self._write(batch._asdict())
        self.batches.append(batch)

    def _lock(self) -> None:
        try:
            self._fs.lock(self._fd)
        except OSError as error:
            raise SetupError(f"{self._path}: an import is under way with this map") from error

    def _take_up(self) -> None:
        subject, self.batches, self._end = _parsed(read_file(self._fs, self._path), self._path)
        if subject != self._subject:
            raise SetupError(
                f"{self._path} is the map of an import of {subject.directory} into topic {subject.topic} with the id "
                f"{subject.topic_id}, not of {self._subject.directory} into {self._subject.topic} with the id "
                f"{self._subject.topic_id}; give another file by --map"
            )
        self._fs.truncate(self._fd, self._end)  # a line that was not written to its end: its batch was not sent

    def _write(self, entry: Mapping[str, object]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        self._fs.pwritev(self._fd, [line], self._end)
        self._fs.fsync(self._fd)
        self._end += len(line)


def read_map(fs: FileSystem, path: str) -> tuple[Subject, list[Batch]]:
    """Returns what the map in a file is of, and its batches; raises SetupError for another file."""
    subject, batches, _ = _parsed(read_file(fs, path), path)
    return subject, batches


def offset_of(fs: FileSystem, log: LegacyPartition, batches: Sequence[Batch], position: int) -> int:
    """Returns the offset of the first record at or behind a position of a partition's 0.7 log.

    A position within a message stands for that message: none of its records is passed over. Raises LogError where the
    import has not come so far.
    """
    of_partition = [one for one in batches if one.partition == log.partition]
    if not of_partition:
        raise LogError(f"nothing of partition {log.partition} was imported")
    before = [one for one in of_partition if one.position <= position]
    begin = next(one for one in of_partition if one.position == (before or of_partition)[-1 if before else 0].position)
    offset, end = begin.offset - begin.payload, of_partition[-1].next_offset
    for file, item in read_partition(fs, log, begin.position):
        if position < file.first_position + item.position + item.size_bytes:
            break
        offset += len(item.payloads) if isinstance(item, Payloads) else 0
    if offset > end:
        raise LogError(f"position {position} of partition {log.partition} is behind what was imported")
    return offset


def _parsed(content: bytes, path: str) -> tuple[Subject, list[Batch], int]:
    """Returns subject and batches of a map's bytes, and where its last whole line ends."""
    whole = content[: content.rfind(b"\n") + 1]
    try:
        first, *others = (json.loads(line) for line in whole.splitlines())
        return Subject(**first), [Batch(**one) for one in others], len(whole)
    except (ValueError, TypeError) as error:
        raise SetupError(f"{path} is not the map of an import: {error}") from None
