"""The cursors of sensors: JSON, compressed, as Dagster keeps a copy with each tick.

10,000 topics with a digest of eight letters each take about 100 kB.
"""

from __future__ import annotations

import base64
import json
import zlib

from millrace.json_values import Json


def pack_cursor(value: Json) -> str:
    """Returns the text of a cursor."""
    return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode())).decode()


def unpack_cursor(text: str | None) -> Json:
    """Returns what a cursor holds; None for no cursor, and for a text that `pack_cursor` did not write."""
    try:
        value: Json = json.loads(zlib.decompress(base64.b64decode(text or "", validate=True)))
    except (ValueError, zlib.error):
        return None
    return value
