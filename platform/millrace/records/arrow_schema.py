"""Defines the Arrow columns in which decoded records are handed to readers, a row for each record."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

Column: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_TYPE))
RECORD_FIELDS: list[pa.Field[pa.DataType]] = [
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP_TYPE),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS_TYPE),
]
RECORD_SCHEMA = pa.schema(RECORD_FIELDS)
UNSHOWN_FIELDS: list[pa.Field[pa.DataType]] = [
    pa.field("timestamp_ms", pa.int64()),
    pa.field("header_keys", pa.list_(pa.field("element", pa.binary()))),
]
"""What the columns of RECORD_SCHEMA can't show of a record; `records.arrow_unshown` says when."""
