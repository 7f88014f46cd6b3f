"""The raw envelope: the columns of every record as it came (topic, partition, offset, time, key, value, headers)."""

from __future__ import annotations

import pyarrow as pa

from millrace.records.arrow import RECORD_FIELDS
from millrace_pipelines.arrow import Field

ENVELOPE_FIELDS: list[Field] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    *RECORD_FIELDS,
]
ENVELOPE_SCHEMA = pa.schema(ENVELOPE_FIELDS)
ENVELOPE_COLUMNS = tuple(ENVELOPE_SCHEMA.names)
