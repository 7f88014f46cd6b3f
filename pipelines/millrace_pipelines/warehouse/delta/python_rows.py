"""Rows of Arrow as Python's values; a time that lies beyond Python's calendar (years 1 to 9999) is a text.

A record's timestamp is whatever its producer says, and Arrow and Delta hold years up to 294,000.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def python_rows(rows: Any) -> list[dict[str, Any]]:
    """The rows of a table or a batch, under their columns' names."""
    try:
        found: list[dict[str, Any]] = rows.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_value(one) for one in column] for column in rows.columns]
        found = [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    return found


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(scalar[name]) for name in scalar.type.names}
        if isinstance(scalar, pa.ListScalar):  # a map is one too
            values: Any = scalar.values
            return [_value(one) for one in values]
        return scalar.cast(pa.string()).as_py()
