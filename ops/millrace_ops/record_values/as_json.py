"""Values of records as JSON can hold them."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time
from math import isfinite

from millrace.json_values import JsonValue


def json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Returns bytes for JSON: their text if they are UTF-8, else `{"base64": ...}`; null stays null."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def json_value(value: object) -> JsonValue:
    """Returns a value for JSON: times in ISO 8601, bytes as text if they are UTF-8, else in base64, NaN as text."""
    if isinstance(value, bytes):
        return json_bytes(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): json_value(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        return json.dumps(value)
    return value if isinstance(value, (int, float, str)) or value is None else str(value)
