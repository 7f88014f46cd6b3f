"""What becomes of values: columns of those that pass, and a refusal with its reason for each that does not.

A dead letter has the record's raw envelope, the reason why it is no row, and what the envelope hides: that has null for
a time outside of the years 1 to 9999, and U+FFFD in a header's key that is not UTF-8; a dead letter keeps both as they
are (`records.arrow_columns`), in `timestamp_ms` and `header_keys`, null in other dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeAlias, TypedDict

import numpy as np
import pyarrow as pa

from millrace.records.arrow_columns import UNSHOWN_FIELDS
from millrace_pipelines.arrow import ENVELOPE_FIELDS, Field, Flags, Indices, indices_array


class Reason(StrEnum):
    """The reasons for which a record becomes a dead letter."""

    MALFORMED = "malformed"  # not of the format: no JSON, cut short, bytes behind its end, text that is not UTF-8
    FRAMING = "framing"  # not in Confluent's wire format
    TYPE = "type"  # a field of another type
    RANGE = "range"  # a number or a time that its column can't hold exactly
    MISSING = "missing"  # a required field that is not there, or null
    DUPLICATE = "duplicate"  # a JSON key twice in one object
    UNKNOWN_SCHEMA = "unknown-schema"  # the registry knows no such schema
    UNUSABLE_SCHEMA = "unusable-schema"  # the registry's schema has no columns
    NEWER_SCHEMA = "newer-schema"  # fields that the table does not have yet
    LATE = "late"  # older than `late_after` allows
    EVENT_TIME = "event-time"  # no event time, or one far out of range
    PARTITIONS = "partitions"  # more partition values than a task may write
    HEADER_KEY = "header-key"  # a header's key that is null or not UTF-8
    TIMESTAMP = "timestamp"  # a record's own time outside of the years 1 to 9999
    DAMAGED = "damaged"  # no record, but the bytes of a batch that can't be read


class UnfitError(Exception):
    """A value does not fit its schema, for a reason; half a surrogate pair is escaped in the message."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message.encode(errors="backslashreplace").decode())
        self.reason = reason


class Refusal(NamedTuple):
    """A value that does not fit, by its index among the values, with the reason."""

    row: int
    reason: Reason
    message: str
    schema_id: int | None = None


class Decoded(NamedTuple):
    """Decoded values: `columns` has a row for each value without a refusal. Both are in the order of the values."""

    columns: pa.Table
    refusals: list[Refusal]


def passed(refusals: Sequence[Refusal], count: int) -> Flags:
    """Returns a mask of those of `count` values that are not refused."""
    flags = np.ones(count, np.bool_)
    flags[[refusal.row for refusal in refusals]] = False
    return flags


class Part(NamedTuple):
    """Decoded rows of some of the values; `indices` has each row's index among the values."""

    indices: Indices
    columns: pa.Table


Outcome: TypeAlias = Part | Refusal


def joined(outcomes: Iterable[Outcome], schema: pa.Schema) -> Decoded:
    """Joins parts and refusals: the rows of all parts, and all refusals, each in the order of the values."""
    parts: list[Part] = []
    refusals: list[Refusal] = []
    for outcome in outcomes:
        parts.append(outcome) if isinstance(outcome, Part) else refusals.append(outcome)
    ordered = sorted(refusals, key=lambda refusal: refusal.row)
    if not parts:
        return Decoded(schema.empty_table(), ordered)
    indices = np.concatenate([part.indices for part in parts])
    columns = pa.concat_tables([part.columns for part in parts])
    if len(indices) > 1 and not bool((indices[1:] > indices[:-1]).all()):
        columns = columns.take(indices_array(np.argsort(indices, kind="stable")))
    return Decoded(columns, ordered)


def refused_where(flags: Flags, reason: Reason, message: str) -> Iterator[Refusal]:
    """Yields a refusal for each index at which `flags` is true."""
    for row in np.flatnonzero(flags):
        yield Refusal(int(row), reason, message)


REFUSAL_FIELDS: list[Field] = [
    pa.field("error", pa.string()),
    pa.field("reason", pa.string()),
    pa.field("schema_id", pa.int64()),
    pa.field("load_id", pa.string()),
    pa.field("ledger", pa.string()),
    pa.field("replay", pa.int64()),
    *UNSHOWN_FIELDS,
]
DEAD_LETTER_FIELDS: list[Field] = [*ENVELOPE_FIELDS, *REFUSAL_FIELDS]
DEAD_LETTER_SCHEMA = pa.schema(DEAD_LETTER_FIELDS)


class DeadLetterHeader(TypedDict):
    """A header of a dead letter's record."""

    key: str
    value: bytes | None


class DeadLetter(TypedDict):
    """A dead letter as a dictionary; older ones lack some keys, and a time beyond the calendar is a text."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | str | None
    key: bytes | None
    value: bytes | None
    headers: list[DeadLetterHeader] | None
    error: str
    reason: str | None
    schema_id: int | None
    load_id: str | None
    ledger: str
    replay: int | None
    timestamp_ms: int | None
    header_keys: list[bytes | None] | None
