"""Event time decides which partition of its table a row belongs to, whenever it comes.

    "event_time": {"column": "time_hour", "granularity": "day", "late_after": "7d", "late": "accept"}

The partition column is `event_date` (a date, UTC) for days, `event_hour` (a timestamp, UTC) for hours. A row without an
event time goes to the partition null. A row is late if its event time lies more than `late_after` before the record's
own timestamp, so what is late does not depend on when it is loaded.

Partitions are bounded: event times outside of `earliest` … `latest` are refused, and a task writes at most
`max_partitions` values. Rows of further ones are refused too, and can be replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millrace.records.arrow_columns import TIMESTAMP_TYPE
from millrace.times import EPOCH, parse_time
from millrace_pipelines.arrow import Columns, Field, Flags, Indices
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.outcome import Reason, Refusal, refused_where

KEYS = {"column", "granularity", "earliest", "latest", "late_after", "late", "max_partitions"}
DURATION = re.compile(r"(\d{1,9})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MICROSECOND = timedelta(microseconds=1)
MAX_PARTITIONS = 1000
NO_TIME = np.iinfo(np.int64).min


class Granularity(StrEnum):
    """The span of time that one partition has."""

    DAY = "day"
    HOUR = "hour"


class Late(StrEnum):
    """The choices for rows that are late: they are accepted, or become dead letters."""

    ACCEPT = "accept"
    DEAD_LETTER = "dead-letter"


SPAN_US = {Granularity.DAY: 86_400_000_000, Granularity.HOUR: 3_600_000_000}


class Assigned(NamedTuple):
    """Each row's partition, in spans since 1970, NO_TIME for null; the refused rows; and how many rows were late."""

    spans: Indices
    refusals: list[Refusal]
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTime:
    """The declared event time: the column that decides in which partition a row goes, and its rules."""

    column: str
    granularity: Granularity = Granularity.DAY
    earliest: str = "1970-01-01"
    latest: str = "2100-01-01"
    late_after: str | None = None
    late: Late = Late.ACCEPT
    max_partitions: int = MAX_PARTITIONS

    @property
    def partition_field(self) -> Field:
        """Returns the partition column that is derived from the event time."""
        if self.granularity is Granularity.DAY:
            return pa.field("event_date", pa.date32())
        return pa.field("event_hour", TIMESTAMP_TYPE)

    def partition_values(self, span: int) -> dict[str, str | None]:
        """Returns a partition's value as Delta writes it, by the name of the partition column."""
        if span == NO_TIME:
            return {self.partition_field.name: None}
        moment = EPOCH + timedelta(microseconds=span * SPAN_US[self.granularity])
        text = moment.date().isoformat() if self.granularity is Granularity.DAY else f"{moment:%Y-%m-%d %H:%M:%S}"
        return {self.partition_field.name: text}

    def assign(self, rows: pa.Table, taken: set[int]) -> Assigned:
        """Returns the partitions of rows; adds new ones to `taken`, those that the task writes to already."""
        times, present = _microseconds(rows.column(self.column))
        first, last = _moment(self.earliest), _moment(self.latest)
        beyond = present & ((times < first) | (times >= last))
        message = f"field {self.column}: an event time outside of {self.earliest} to {self.latest}"
        refusals = list(refused_where(beyond, Reason.EVENT_TIME, message))
        late = self._late(times, present & ~beyond, rows)
        refused = beyond
        if self.late is Late.DEAD_LETTER:
            refusals += refused_where(late, Reason.LATE, f"field {self.column}: late by more than {self.late_after}")
            refused = refused | late
        spans = np.where(present, times // SPAN_US[self.granularity], NO_TIME)
        refusals += self._too_many(spans, refused, taken)
        return Assigned(spans, sorted(refusals, key=lambda refusal: refusal.row), int(late.sum()))

    def _late(self, times: Indices, judged: Flags, rows: pa.Table) -> Flags:
        if self.late_after is None:
            return np.zeros(len(times), np.bool_)
        arrived, has_arrived = _microseconds(rows.column("timestamp"))
        return judged & has_arrived & (times < arrived - duration_s(self.late_after) * 1_000_000)

    def _too_many(self, spans: Indices, refused: Flags, taken: set[int]) -> Iterator[Refusal]:
        """Adds new partitions to `taken`, in the order of rows, and refuses rows for which there is no room left."""
        found, firsts = np.unique(spans[~refused], return_index=True)
        fresh = [int(span) for span in found[np.argsort(firsts)] if int(span) not in taken]
        room = max(self.max_partitions - len(taken), 0)
        taken.update(fresh[:room])
        if fresh[room:]:
            message = f"field {self.column}: more than {self.max_partitions} partitions in one task"
            yield from refused_where(~refused & np.isin(spans, fresh[room:]), Reason.PARTITIONS, message)


def _microseconds(column: Columns) -> tuple[Indices, Flags]:
    """Returns timestamps or dates as microseconds since 1970, and a mask of those that are not null."""
    moments = column.cast(TIMESTAMP_TYPE) if not column.type.equals(TIMESTAMP_TYPE) else column
    microseconds = moments.cast(pa.int64()).fill_null(pa.scalar(0, pa.int64()))
    return microseconds.to_numpy(), column.is_valid().to_numpy()


def _moment(text: str) -> int:
    return (parse_time(text) - EPOCH) // MICROSECOND


def duration_s(text: str) -> int:
    """Returns a duration such as 90s, 30m, 12h, 7d in seconds; raises SchemaError for another text."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise SchemaError(f"late_after: {text!r} is not a duration such as 90s, 30m, 12h or 7d")
    return int(match[1]) * SECONDS[match[2]]


def parse_event_time(declared: object) -> EventTime:
    """Parses the event time of a schema file; raises SchemaError, which says what is wrong."""
    if not isinstance(declared, dict) or not isinstance(declared.get("column"), str):
        raise SchemaError('event_time is an object {"column": …, "granularity": "day" or "hour"}')
    if unknown := declared.keys() - KEYS:
        raise SchemaError(f"event_time: {', '.join(sorted(unknown))} is not known")
    try:
        event_time = EventTime(**{**declared, **_choices(declared)})
        if not _moment(event_time.earliest) < _moment(event_time.latest):
            raise SchemaError("event_time: latest is not after earliest")
    except (ValueError, TypeError) as error:
        raise SchemaError(f"event_time: {error}") from None
    if event_time.late_after is not None:
        duration_s(event_time.late_after)
    if type(event_time.max_partitions) is not int or event_time.max_partitions < 1:
        raise SchemaError(f"event_time: max_partitions is {event_time.max_partitions!r}, not a number above 0")
    return event_time


def _choices(declared: Mapping[str, object]) -> dict[str, StrEnum]:
    return {
        "granularity": Granularity(str(declared.get("granularity", Granularity.DAY))),
        "late": Late(str(declared.get("late", Late.ACCEPT))),
    }
