"""What an upsert did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertCounts:
    """What became of a run's records by key: `inserted` keys are new, `deleted` ones are gone.

    `stale` counts the keys whose row in the table is newer, `keyless` the records left out for want of a key.
    """

    inserted: int
    updated: int
    deleted: int
    stale: int
    keyless: int
