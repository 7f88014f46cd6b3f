"""The columns of every record as it came: the raw envelope, and what a dead letter has beside it (spec H4)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millrace.records.arrow import RECORD_FIELDS

ENVELOPE_FIELDS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    *RECORD_FIELDS,
]
ENVELOPE_SCHEMA = pa.schema(ENVELOPE_FIELDS)
ENVELOPE_COLUMNS = tuple(ENVELOPE_SCHEMA.names)
LETTER_FIELDS: list[pa.Field[Any]] = [
    pa.field("error", pa.string()),
    pa.field("reason", pa.string()),
    pa.field("schema_id", pa.int64()),
    pa.field("load_id", pa.string()),
    pa.field("ledger", pa.string()),
    pa.field("replay", pa.int64()),
]
DEAD_LETTER_FIELDS: list[pa.Field[Any]] = [*ENVELOPE_FIELDS, *LETTER_FIELDS]
DEAD_LETTER_SCHEMA = pa.schema(DEAD_LETTER_FIELDS)
