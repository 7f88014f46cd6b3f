"""What a load, and a reload, answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace_pipelines.warehouse.keys.counts import UpsertCounts
from millrace_pipelines.warehouse.ledger.plan import LostRange
from millrace_pipelines.warehouse.load.verify import LoadedRange


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load did; `version` is None where there was nothing new.

    `late` counts records whose event time was older than the schema's `late_after`, rows and dead letters alike;
    `value_bytes` counts the records' values as read, `bytes` the data files as written; `seconds` is the time of the
    tasks and the commit, without the start of a Spark session. `lag` has, by partition, how many readable offsets the
    table lacks. `upserted` says what became of the keys in a table with one row for each. `group` is the group whose
    offsets were committed, `group_error` the reason why they could not be.
    """

    topic: str
    table: str
    rows: int = 0
    dead_letters: int = 0
    late: int = 0
    bytes: int = 0
    value_bytes: int = 0
    ranges: tuple[LoadedRange, ...] = ()
    lost: tuple[LostRange, ...] = ()
    lag: Mapping[int, int] = field(default_factory=dict)
    tasks: int = 0
    seconds: float = 0.0
    version: int | None = None
    load_id: str | None = None
    upserted: UpsertCounts | None = None
    group: str | None = None
    group_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """What a reload did; `version` is None where its ranges have no offset.

    `lost` are requested offsets that can't be read any more; the rows that the table has of them stay. `seconds`,
    `group` and `group_error` are as in a `LoadReport`.
    """

    topic: str
    table: str
    replaced: tuple[LoadedRange, ...] = ()
    backfilled: tuple[LoadedRange, ...] = ()
    lost: tuple[LostRange, ...] = ()
    rows: int = 0
    dead_letters: int = 0
    removed_rows: int = 0
    seconds: float = 0.0
    version: int | None = None
    group: str | None = None
    group_error: str | None = None
