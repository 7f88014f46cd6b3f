"""The columns of a dead letter: the record's raw envelope, and the reason why it is no row."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

import pyarrow as pa

from millrace_pipelines.arrow import Field
from millrace_pipelines.spark.envelope import ENVELOPE_FIELDS

LETTER_FIELDS: list[Field] = [
    pa.field("error", pa.string()),
    pa.field("reason", pa.string()),
    pa.field("schema_id", pa.int64()),
    pa.field("load_id", pa.string()),
    pa.field("ledger", pa.string()),
    pa.field("replay", pa.int64()),
]
DEAD_LETTER_FIELDS: list[Field] = [*ENVELOPE_FIELDS, *LETTER_FIELDS]
DEAD_LETTER_SCHEMA = pa.schema(DEAD_LETTER_FIELDS)


class LetterHeader(TypedDict):
    """A header of a letter's record."""

    key: str
    value: bytes | None


class Letter(TypedDict):
    """A dead letter as Python's values; a time beyond the calendar is a text, and older letters lack some values."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | str | None
    key: bytes | None
    value: bytes | None
    headers: list[LetterHeader] | None
    error: str
    reason: str | None
    schema_id: int | None
    load_id: str | None
    ledger: str
    replay: int | None
