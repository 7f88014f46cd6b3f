"""What a load, and a reload, answers; and what their dry runs do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace_pipelines.warehouse.keys.upsert import UpsertCounts
from millrace_pipelines.warehouse.ledger.generation import GivenUp
from millrace_pipelines.warehouse.ledger.plan import LostRange, OffsetRange
from millrace_pipelines.warehouse.load.verify import LoadedRange
from millrace_pipelines.warehouse.tables.open import TableChanges


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load did; `version` is None where there was nothing new.

    `late` counts records whose event time was older than the schema's `late_after`, rows and dead letters alike;
    `value_bytes` counts the records' values as read, `bytes` the data files as written; `seconds` is the time of the
    tasks and the commit, without the start of a Spark session. `lost` are offsets that retention deleted, `missing`
    those that the log has lost, where the load was told to go on without them. `lag` has, by partition, how many
    readable offsets the table lacks. `upserted` says what became of the keys in a table with one row for each. `group`
    is the group whose offsets were committed, `group_error` the reason why they could not be.
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
    missing: tuple[LostRange, ...] = ()
    lag: Mapping[int, int] = field(default_factory=dict)
    tasks: int = 0
    seconds: float = 0.0
    version: int | None = None
    load_id: str | None = None
    upserted: UpsertCounts | None = None
    group: str | None = None
    group_error: str | None = None

    @property
    def skipped(self) -> tuple[LostRange, ...]:
        """The offsets that the load went on without."""
        return (*self.lost, *self.missing)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPreview:
    """What a load would do now.

    Attributes:
        topic: The topic's name.
        table: The table, as it was given.
        version: The table's version that was looked at; None where there is none yet.
        changes: What is created, and which columns are added or widened, before rows are written.
        new_ledger: The name of the ledger that would begin first; None for the present one.
        given_up: Offsets of the present ledger that the log has no longer, where a new one would begin.
        ranges: What would be read. Each offset is a record, or a transaction marker, or of an aborted transaction, or
            compacted.
        lost: Offsets that the load would go on without.
        lag: By partition, how many readable offsets the table would lack afterwards.
    """

    topic: str
    table: str
    version: int | None
    changes: TableChanges
    new_ledger: str | None
    given_up: tuple[GivenUp, ...]
    ranges: tuple[OffsetRange, ...]
    lost: tuple[LostRange, ...]
    lag: Mapping[int, int]

    @property
    def offsets(self) -> int:
        """How many offsets would be read."""
        return sum(span.offsets for span in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPreview:
    """What a reload would do now; `topic`, `table`, `version` and `changes` are as in a `LoadPreview`.

    Attributes:
        replaced: What would be read in place of what the table has.
        backfilled: What would be read and is new to the table.
        lost: Requested offsets that can't be read any more; the rows that the table has of them stay.
        removed_rows: How many rows the table has in the replaced ranges; 0 for a table with one row for each key.
    """

    topic: str
    table: str
    version: int | None
    changes: TableChanges
    replaced: tuple[OffsetRange, ...]
    backfilled: tuple[OffsetRange, ...]
    lost: tuple[LostRange, ...]
    removed_rows: int

    @property
    def offsets(self) -> int:
        """How many offsets would be read."""
        return sum(span.offsets for span in (*self.replaced, *self.backfilled))
