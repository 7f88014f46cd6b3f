"""The columns of a dead letter: the record's raw envelope, and the reason why it is no row."""

from __future__ import annotations

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
