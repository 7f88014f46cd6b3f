"""Reads records from JSON lines in the form that `millrace consume --json` prints, so that they can be replayed.

    {"partition": 0, "timestamp_ms": 1700000000000, "key": "k", "value": {"base64": "dv8="}, "headers": [["h", null]]}

A key, a value or a header is a text (UTF-8), null, or `{"base64": …}`. Only the value is required. `topic` and `offset`
are ignored, because the records go into another topic or to other offsets.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from millrace.config import MAX_INT, MAX_LONG
from millrace.errors import InvalidRecordError
from millrace_ops.cli.produce_lines import Line, Placed

if TYPE_CHECKING:
    from millrace.records.record import Header

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
    """Returns the bytes of a key, a value or a header; raises InvalidRecordError for any other form."""
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
    """Returns the headers in their order, repeated names included."""
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
    """Returns the whole number of a field, or None if it is missing or null."""
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
