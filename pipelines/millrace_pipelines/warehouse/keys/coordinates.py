"""The coordinates of records, and which of several records with one key is the newest.

The coordinates of a record are (key, partition, offset, timestamp). Within a partition the higher offset is newer,
whatever the timestamps say, for that is the order of the log. A key that is in two partitions (because the topic got
more of them, or a producer chose) has no such order: of its newest records in each partition the one with the later
timestamp is newer, and of equal timestamps the one in the higher partition.
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
Numbers = np.typing.NDArray[np.int64]

COORDINATE_FIELDS: list[Field] = [
    pa.field("key", pa.binary()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
]
COORDINATE_SCHEMA = pa.schema(COORDINATE_FIELDS)
BEFORE_ALL_TIMES = -1
ENVELOPE = ["key", "partition", "offset", "timestamp"]


def coordinates_of(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Returns key, partition, offset and timestamp of rows; a missing timestamp becomes the earliest one."""
    timestamps = filled(rows.column("timestamp").cast(pa.int64()), BEFORE_ALL_TIMES)
    columns = [rows.column(name) for name in ("key", "partition", "offset")]
    return pa.Table.from_arrays([*columns, timestamps], schema=COORDINATE_SCHEMA)


def newest_of_each_key(coordinates: pa.Table) -> Numbers:
    """Returns the row numbers, ascending, of the newest record of each key; no key may be null."""
    if coordinates.num_rows == 0:
        return np.zeros(0, np.int64)
    by_offset = _Ranks(coordinates, [("offset", "ascending")])
    keys = by_offset.grouped(["key"], [("partition", "min"), ("partition", "max")])
    if pc.all(pc.equal(keys.column("partition_min"), keys.column("partition_max"))).as_py():
        return np.sort(by_offset.last(keys))
    newest = by_offset.last(by_offset.grouped(["key", "partition"]))
    by_time = _Ranks(coordinates.take(newest), [("timestamp", "ascending"), ("partition", "ascending")])
    return np.sort(newest[by_time.last(by_time.grouped(["key"]))])


class KeyConflicts(NamedTuple):
    """Row numbers: of table rows that newer records replace, of these records, and of records that are older."""

    replaced_rows: Numbers
    newer_coordinates: Numbers
    older_coordinates: Numbers


def key_conflicts(rows: pa.Table, coordinates: pa.Table) -> KeyConflicts:
    """Compares the rows of a table with the newest records of a load, key by key, and returns which are newer.

    A row with the offset of the load's record is replaced: that record was read again.
    """
    met = pc.index_in(combined(rows.column("key")), value_set=combined(coordinates.column("key")))
    numbers = np.flatnonzero(met.is_valid().to_numpy(zero_copy_only=False))
    opponents = met.drop_null().to_numpy().astype(np.int64)
    mine = {name: rows.column(name).to_numpy()[numbers] for name in ("partition", "offset", "timestamp")}
    theirs = {name: coordinates.column(name).to_numpy()[opponents] for name in ("partition", "offset", "timestamp")}
    later = (theirs["timestamp"] > mine["timestamp"]) | (
        (theirs["timestamp"] == mine["timestamp"]) & (theirs["partition"] > mine["partition"])
    )
    beaten = np.where(theirs["partition"] == mine["partition"], theirs["offset"] >= mine["offset"], later)
    return KeyConflicts(numbers[beaten], opponents[beaten], opponents[~beaten])


class _Ranks:
    """Records' coordinates, each with its rank in a given order."""

    def __init__(self, coordinates: pa.Table, order: Order) -> None:
        self._ordered = pc.sort_indices(coordinates, sort_keys=order).to_numpy()
        ranks = np.empty(coordinates.num_rows, np.int64)
        ranks[self._ordered] = np.arange(coordinates.num_rows)
        self._ranked = coordinates.append_column("rank", pa.array(ranks))

    def grouped(self, by: list[str], aggregates: Aggregates = ()) -> pa.Table:
        """Returns a row for each group, with the greatest rank in it."""
        return self._ranked.group_by(by, use_threads=False).aggregate([("rank", "max"), *aggregates])

    def last(self, groups: pa.Table) -> Numbers:
        """Returns, for each group of `grouped`, the row number of the coordinates with its greatest rank."""
        numbers: Numbers = self._ordered[groups.column("rank_max").to_numpy()].astype(np.int64)
        return numbers
