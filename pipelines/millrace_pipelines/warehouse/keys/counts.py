"""What an upsert did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertCounts:
    """What became of the keys of a run: `inserted` ones are new in the table, `deleted` ones are gone from it.

    `stale` counts the keys whose row in the table is newer, `keyless` the records that were left out without a key.
    """

    inserted: int
    updated: int
    deleted: int
    stale: int
    keyless: int
