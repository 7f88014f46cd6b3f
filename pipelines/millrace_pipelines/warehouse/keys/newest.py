"""Which record of a key is the newest, decided from the records' places alone.

A place is (key, partition, offset, timestamp). Within a partition the higher offset is newer, whatever the timestamps
say, for that is the order of the log. A key that is in two partitions (because the topic got more of them, or a
producer chose) has no such order: of its newest records in each partition the one with the later timestamp is newer,
and of equal timestamps the one in the higher partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_pipelines.arrow import Field, combined, filled

Order: TypeAlias = list[tuple[str, Literal["ascending"]]]
Aggregates: TypeAlias = Sequence[tuple[str, Literal["min", "max"]]]

PLACE_FIELDS: list[Field] = [
    pa.field("key", pa.binary()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
]
PLACE_SCHEMA = pa.schema(PLACE_FIELDS)
BEFORE_ALL_TIMES = -1


def places_of(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Returns the places of rows; a missing timestamp is before all others."""
    timestamps = filled(rows.column("timestamp").cast(pa.int64()), BEFORE_ALL_TIMES)
    columns = [rows.column(name) for name in ("key", "partition", "offset")]
    return pa.Table.from_arrays([*columns, timestamps], schema=PLACE_SCHEMA)


def newest_of_each_key(places: pa.Table) -> np.typing.NDArray[np.int64]:
    """Returns the row numbers of the newest place of each key, in ascending order; no key may be null."""
    if places.num_rows == 0:
        return np.zeros(0, np.int64)
    by_offset = _Ranks(places, [("offset", "ascending")])
    keys = by_offset.grouped(["key"], [("partition", "min"), ("partition", "max")])
    if pc.all(pc.equal(keys.column("partition_min"), keys.column("partition_max"))).as_py():
        return np.sort(by_offset.last(keys))
    newest = by_offset.last(by_offset.grouped(["key", "partition"]))
    by_time = _Ranks(places.take(newest), [("timestamp", "ascending"), ("partition", "ascending")])
    return np.sort(newest[by_time.last(by_time.grouped(["key"]))])


class KeyConflicts(NamedTuple):
    """The rows of a table that meet newer places, these places, and the places that meet newer rows, all by number."""

    replaced_rows: np.typing.NDArray[np.int64]
    newer_places: np.typing.NDArray[np.int64]
    older_places: np.typing.NDArray[np.int64]


def key_conflicts(rows: pa.Table, places: pa.Table) -> KeyConflicts:
    """Compares the places of a table's rows with the newest places of a load, by key.

    A row at the same place as the load's is beaten: the record was read again.
    """
    met = pc.index_in(combined(rows.column("key")), value_set=combined(places.column("key")))
    numbers = np.flatnonzero(met.is_valid().to_numpy(zero_copy_only=False))
    opponents = met.drop_null().to_numpy().astype(np.int64)
    mine = {name: rows.column(name).to_numpy()[numbers] for name in ("partition", "offset", "timestamp")}
    theirs = {name: places.column(name).to_numpy()[opponents] for name in ("partition", "offset", "timestamp")}
    later = (theirs["timestamp"] > mine["timestamp"]) | (
        (theirs["timestamp"] == mine["timestamp"]) & (theirs["partition"] > mine["partition"])
    )
    beaten = np.where(theirs["partition"] == mine["partition"], theirs["offset"] >= mine["offset"], later)
    return KeyConflicts(numbers[beaten], opponents[beaten], opponents[~beaten])


class _Ranks:
    """Places with their ranks in an order."""

    def __init__(self, places: pa.Table, order: Order) -> None:
        self._ordered = pc.sort_indices(places, sort_keys=order).to_numpy()
        ranks = np.empty(places.num_rows, np.int64)
        ranks[self._ordered] = np.arange(places.num_rows)
        self._ranked = places.append_column("rank", pa.array(ranks))

    def grouped(self, by: list[str], aggregates: Aggregates = ()) -> pa.Table:
        """Returns a row for each group, with its greatest rank."""
        return self._ranked.group_by(by, use_threads=False).aggregate([("rank", "max"), *aggregates])

    def last(self, groups: pa.Table) -> np.typing.NDArray[np.int64]:
        """Returns for each group the row number of the place with the greatest rank."""
        numbers: np.typing.NDArray[np.int64] = self._ordered[groups.column("rank_max").to_numpy()].astype(np.int64)
        return numbers
