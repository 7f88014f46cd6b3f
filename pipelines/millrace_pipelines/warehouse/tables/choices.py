"""How a table takes records, as users choose it."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What becomes of a record that has the key of another: a row beside it, or in its place."""

    APPEND = "append"
    UPSERT = "upsert"
