"""How a table takes records, as users choose it."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """Whether a record with the key of another becomes a row beside it, or in its place."""

    APPEND = "append"
    UPSERT = "upsert"
