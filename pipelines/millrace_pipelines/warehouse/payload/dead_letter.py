"""The columns of a dead letter: the record's raw envelope, the reason why it is no row, and what the envelope hides.

The envelope has null for a time outside of the years 1 to 9999, and U+FFFD in a header's key that is not UTF-8; a dead
letter keeps both as they are (`records.arrow_columns`), in `timestamp_ms` and `header_keys`, null in other dead
letters.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

import pyarrow as pa

from millrace.records.arrow import UNSHOWN_FIELDS
from millrace_pipelines.arrow import Field
from millrace_pipelines.spark.envelope import ENVELOPE_FIELDS

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
    """A dead letter as Python's values; older ones lack some, and have a text for a time beyond the calendar."""

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
