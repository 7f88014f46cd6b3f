"""The input of `millrace produce`: cuts a stream into lines, and makes a record of each line.

Lines are passed on as soon as the input pauses, and at the latest when a chunk is read; memory holds one chunk.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from millrace.records.record import Header, NewRecord

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
SHOWN_BYTES = 80


class Line(NamedTuple):
    """A line of the input without its line end; the first line has the number 1."""

    number: int
    text: bytes


class Placed(NamedTuple):
    """A record, the number of its line, and its partition; with None the key decides."""

    line: int
    record: NewRecord
    partition: int | None = None


class LineFormat(NamedTuple):
    """The form of a line: KEY, separator, VALUE, or only VALUE if there is no separator.

    A key, a value or a header's value that equals `null_marker` is null.
    """

    separator: bytes | None = None
    null_marker: bytes | None = None
    headers: tuple[Header, ...] = ()


def lines_of(fd: int) -> Iterator[list[Line]]:
    """Yields the whole lines that are there, at most a chunk of them; raises RecordTooLargeError for an endless one."""
    from millrace.errors import RecordTooLargeError

    rest, number = b"", 1
    while chunk := _read_chunk(fd):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise RecordTooLargeError(f"line {number + len(lines)} is longer than {MAX_LINE_BYTES} bytes")
        yield [Line(*one) for one in enumerate(lines, number)]
        number += len(lines)
    if rest:
        yield [Line(number, rest)]


def records_of_lines(lines: Iterable[Line], form: LineFormat, timestamp_ms: int) -> Iterator[Placed]:
    """Yields a record for each line; raises InvalidRecordError for a line without the key that it should have."""
    from millrace.errors import InvalidRecordError
    from millrace.records.record import NewRecord

    headers = tuple((name, _nullable(value, form)) for name, value in form.headers)
    for number, line in lines:
        if form.separator is None:
            yield Placed(number, NewRecord(_nullable(line, form), None, timestamp_ms, headers))
            continue
        key, found, value = line.partition(form.separator)
        if not found:
            separator = os.fsdecode(form.separator)
            raise InvalidRecordError(f"line {number}: no key separator {separator!r} in {line[:SHOWN_BYTES]!r}")
        yield Placed(number, NewRecord(_nullable(value, form), _nullable(key, form), timestamp_ms, headers))


def _nullable(field: bytes | None, form: LineFormat) -> bytes | None:
    return None if field == form.null_marker else field


def _read_chunk(fd: int) -> bytes:
    """Returns what can be read at once, up to a chunk; waits only for the first byte. Empty means the input's end."""
    chunk = os.read(fd, CHUNK_BYTES)
    parts, size_bytes = [chunk], len(chunk)
    while chunk and size_bytes < CHUNK_BYTES and select.select([fd], [], [], 0)[0]:
        chunk = os.read(fd, CHUNK_BYTES - size_bytes)
        parts.append(chunk)
        size_bytes += len(chunk)
    return b"".join(parts)
