"""The checks of a table, by name."""

from __future__ import annotations

from enum import StrEnum


class Check(StrEnum):
    """The name of a check of a table."""

    LOAD_COMPLETENESS = "load_completeness"
    COMPLETENESS = "completeness"
    STORED_FILES = "stored_files"
    SKIPPED_OFFSETS = "skipped_offsets"
    DEAD_LETTERS = "dead_letters"
    FRESHNESS = "freshness"
    LAG = "lag"
    SCHEMA_DRIFT = "schema_drift"
