"""Where a table's dead letters are: beside it, under its name with a suffix."""

from __future__ import annotations

DEAD_LETTERS_SUFFIX = "__dead_letters"


def dead_letters_dir(table_dir: str) -> str:
    """Returns the folder of a table's dead letters."""
    return table_dir.rstrip("/") + DEAD_LETTERS_SUFFIX
