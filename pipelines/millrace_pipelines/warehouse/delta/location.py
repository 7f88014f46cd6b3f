"""Where dead letters are."""

from __future__ import annotations

DEAD_LETTERS_SUFFIX = "__dead_letters"


def dead_letters_dir(table_dir: str) -> str:
    """Where a table's dead letters are."""
    return table_dir.rstrip("/") + DEAD_LETTERS_SUFFIX
