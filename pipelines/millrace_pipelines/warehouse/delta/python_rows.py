"""Rows of Arrow as Python's values; a time that lies beyond Python's calendar (years 1 to 9999) is a text.

A producer may give a record any timestamp, and Arrow and Delta hold years up to 294,000.
"""

from __future__ import annotations

import pyarrow as pa


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, object]]:
    """Returns the rows of a table or a batch, under their columns' names."""
    try:
        found: list[dict[str, object]] = rows.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_value(one) for one in column] for column in rows.columns]
        found = [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    return found


def _value(scalar: pa.Scalar[pa.DataType]) -> object:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(scalar[name]) for name in scalar}
        if isinstance(scalar, pa.ListScalar):  # a map is one, too
            return [_value(one) for one in scalar.values or []]
        return scalar.cast(pa.string()).as_py()
