"""The input of `millrace produce`: cuts a stream into lines, and makes a record of each line, of text or of JSON.

Lines are passed on as soon as the input pauses, and at the latest when a chunk is read; memory holds one chunk.

A line of JSON is what `millrace consume --json` prints, so that records can be replayed:

    {"partition": 0, "timestamp_ms": 1700000000000, "key": "k", "value": {"base64": "dv8="}, "headers": [["h", null]]}

A key, a value or a header is a text (UTF-8), null, or `{"base64": …}`. Only the value is required. `topic` and `offset`
are ignored, because the records go into another topic or to other offsets.
"""

from __future__ import annotations

import base64
import json
import os
import select
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from millrace.config import MAX_INT, MAX_LONG
from millrace.errors import InvalidRecordError, RecordTooLargeError

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
    """Yields the whole lines that can be read now, at most a chunk; raises RecordTooLargeError for an endless line."""
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


FIELDS = frozenset({"topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"})
MIN_TIMESTAMP_MS = -1  # a record without a time has this one
SHOWN_CHARACTERS = 80


def records_of_json(
    lines: Iterable[Line], timestamp_ms: int, headers: tuple[Header, ...], *, keeps_times: bool
) -> Iterator[Placed]:
    """Yields a record for each line that is not blank; raises InvalidRecordError, which names the line.

    Args:
        lines: One JSON object each.
        timestamp_ms: The time of records that have none, or of all records unless `keeps_times`.
        headers: Headers to add to each record's own.
        keeps_times: Whether the records' own times are kept.
    """
    from millrace.records.record import NewRecord

    for number, text in lines:
        if not text.strip():
            continue
        try:
            fields = _object(text)
            own_time_ms = _whole(fields, "timestamp_ms", MIN_TIMESTAMP_MS, MAX_LONG)
            time_ms = own_time_ms if keeps_times and own_time_ms is not None else timestamp_ms
            own = (_field(fields.get("key"), "key"), time_ms, _headers(fields.get("headers")) + headers)
            record = NewRecord(_field(fields["value"], "value"), *own)
            yield Placed(number, record, _whole(fields, "partition", 0, MAX_INT))
        except InvalidRecordError as error:
            raise InvalidRecordError(f"line {number}: {error}") from error


def _object(text: bytes) -> Mapping[str, object]:
    """Returns the fields of a line; raises InvalidRecordError if it is no object or has other fields than a record."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRecordError(f"no JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidRecordError(f"{_shown(fields)} is no JSON object of a record")
    if unknown := fields.keys() - FIELDS:
        raise InvalidRecordError(
            f"unknown field {', '.join(sorted(unknown))}; a record has {', '.join(sorted(FIELDS))}"
        )
    if "value" not in fields:
        raise InvalidRecordError("the field value is missing; null makes a tombstone")
    return fields


def _field(value: object, name: str) -> bytes | None:
    """Returns the bytes of a text or `{"base64": …}`, None for null; raises InvalidRecordError for other forms."""
    match value:
        case None:
            return None
        case str(text):
            return _encoded(text, name)
        case {"base64": str(text), **more} if not more:
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise InvalidRecordError(f"{name}: no base64: {error}") from None
    raise InvalidRecordError(f'{name} is {_shown(value)}, expected a text, null or {{"base64": TEXT}}')


def _headers(value: object) -> tuple[Header, ...]:
    """Returns a record's headers from JSON in their order; a name may come several times."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidRecordError(f"headers are {_shown(value)}, expected a list of [NAME, VALUE]")
    found: list[Header] = []
    for one in value:
        match one:
            case [str(name), content]:
                _encoded(name, "a header's name")
                found.append((name, _field(content, f"header {name}")))
            case _:
                raise InvalidRecordError(f"header {_shown(one)}, expected [NAME, VALUE]")
    return tuple(found)


def _whole(fields: Mapping[str, object], name: str, minimum: int, maximum: int) -> int | None:
    """Returns the whole number in a field of a JSON record, or None if the field is missing or null."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidRecordError(f"{name} is {_shown(value)}, expected a whole number of {minimum} to {maximum}")
    return value


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRecordError(f"{name} is {_shown(text)}, which is no text in UTF-8") from None


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
