"""Splits records in the raw envelope into rows, with their typed columns and partitions, and dead letters.

A record that the envelope does not show as it is (`records.arrow_columns`) is a dead letter in any case. A replay sees
the envelope alone, and makes a row of the record as it is shown there. Damaged batches are one dead letter, with their
bytes, at the first offset of those that are lost in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millrace.client.damaged_batches import Damage
from millrace.records.arrow_columns import UNSHOWN_FIELDS
from millrace_pipelines.arrow import (
    ENVELOPE_COLUMNS,
    ENVELOPE_FIELDS,
    ENVELOPE_SCHEMA,
    Column,
    Columns,
    Field,
    Indices,
    binaries,
    combined,
    flags_of,
    nulls_of,
)
from millrace_pipelines.warehouse.payload.event_time import Assigned
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA, Reason, Refusal, passed, refused_where
from millrace_pipelines.warehouse.payload.payload import Payload

NO_DEAD_LETTERS = DEAD_LETTER_SCHEMA.empty_table()


class Split(NamedTuple):
    """Rows with their partitions in spans of event time, dead letters to write, and how many of both there are.

    `spans` is None for a table without event time. `dead_letter_count` counts the dead letters written before, too.
    """

    rows: pa.Table
    spans: Indices | None
    dead_letters: pa.Table
    dead_letter_count: int
    late: int


class Splitter:
    """Splits the records of one task into rows and dead letters.

    Args:
        payload: The decoder of values; None for a table of raw envelopes.
        known: Sorted offsets of records that are dead letters already, and are not written again.
        load_id: The id of the load, which each dead letter names.
        ledger: The name of the ledger that their offsets belong to, which each names, too.
    """

    def __init__(self, payload: Payload | None, known: Indices, load_id: str, ledger: str) -> None:
        self._payload = payload
        self._known = known
        self._load_id, self._ledger = load_id, ledger
        self._taken: set[int] = set()

    @property
    def columns(self) -> pa.Schema:
        """Returns the columns of data files of rows."""
        return ENVELOPE_SCHEMA if self._payload is None else self._payload.table_schema

    def partition_values(self, span: int | None) -> dict[str, str | None] | None:
        """Returns a partition's value as Delta writes it, by its column; None for a table without event time."""
        event_time = None if self._payload is None else self._payload.schema.event_time
        return None if event_time is None or span is None else event_time.partition_values(span)

    def split(self, envelope: pa.Table) -> Split:
        """Splits records into rows and dead letters; raises RegistryError where a schema can't be asked for."""
        is_known = np.isin(envelope.column("offset").to_numpy(), self._known)
        fresh = envelope.filter(pa.array(~is_known)) if is_known.any() else envelope
        unshown = list(_unshown(fresh))
        shown, dead_letters = fresh.select(ENVELOPE_COLUMNS), self._dead_letters(fresh, unshown)
        if unshown:
            shown = shown.filter(pa.array(passed(unshown, shown.num_rows)))
        split = self._decoded(shown)
        both = pa.concat_tables([dead_letters, split.dead_letters]) if unshown else split.dead_letters
        return split._replace(dead_letters=both, dead_letter_count=both.num_rows + int(is_known.sum()))

    def damaged(self, topic: str, partition: int, damage: Damage) -> pa.Table:
        """Returns the dead letter that stands for damaged batches; no row where it was written before."""
        offset = damage.interval.from_offset
        if np.isin(offset, self._known):
            return NO_DEAD_LETTERS
        shown = {"topic": topic, "partition": partition, "offset": offset, "value": damage.data, "headers": []}
        why = {
            "error": f"offsets {damage.interval} can't be read: {damage.reason}", "reason": Reason.DAMAGED.value,
            "load_id": self._load_id, "ledger": self._ledger,
        }  # fmt: skip
        return pa.Table.from_pylist([shown | why], schema=DEAD_LETTER_SCHEMA)

    def _decoded(self, envelope: pa.Table) -> Split:
        payload = self._payload
        if payload is None:
            return Split(envelope, None, NO_DEAD_LETTERS, 0, 0)
        decoded = payload.decode(binaries(combined(envelope.column("value"))))
        fits = passed(decoded.refusals, envelope.num_rows)
        kept = envelope if fits.all() else envelope.filter(pa.array(fits))
        rows = pa.Table.from_arrays([*kept.columns, *decoded.columns.columns], schema=payload.table_schema)
        if payload.schema.event_time is None:
            dead_letters = self._dead_letters(envelope, decoded.refusals)
            return Split(rows, None, dead_letters, dead_letters.num_rows, 0)
        assigned = payload.schema.event_time.assign(rows, self._taken)
        dead_letters = self._dead_letters(
            envelope, [*decoded.refusals, *_outer(assigned.refusals, np.flatnonzero(fits))]
        )
        rows, spans = _without(rows, assigned)
        return Split(rows, spans, dead_letters, dead_letters.num_rows, assigned.late)

    def _dead_letters(self, envelope: pa.Table, refusals: Sequence[Refusal]) -> pa.Table:
        if not refusals:
            return NO_DEAD_LETTERS
        ordered = sorted(refusals, key=lambda refusal: refusal.row)
        count = len(ordered)
        why: list[Column] = [
            pa.array([refusal.message for refusal in ordered], pa.string()),
            pa.array([refusal.reason.value for refusal in ordered], pa.string()),
            pa.array([refusal.schema_id for refusal in ordered], pa.int64()),
            pa.repeat(pa.scalar(self._load_id, pa.string()), count),
            pa.repeat(pa.scalar(self._ledger, pa.string()), count),
            pa.nulls(count, pa.int64()),
        ]
        refused = envelope.take(pa.array([refusal.row for refusal in ordered], pa.int64()))
        columns = [refused.column(field.name) for field in ENVELOPE_FIELDS]
        kept = [_column(refused, field) for field in UNSHOWN_FIELDS]
        return pa.Table.from_arrays([*columns, *why, *kept], schema=DEAD_LETTER_SCHEMA)


def _unshown(envelope: pa.Table) -> Iterator[Refusal]:
    """Yields a refusal for each record with a time or header key that the envelope's columns can't show."""
    hidden = [flags_of(combined(_column(envelope, field)).is_valid()) for field in UNSHOWN_FIELDS]
    times, keys = hidden
    yield from refused_where(times, Reason.TIMESTAMP, "the record's time is outside of the years 1 to 9999")
    yield from refused_where(keys & ~times, Reason.HEADER_KEY, "a header's key is null or not UTF-8")


def _column(records: pa.Table, field: Field) -> Column | Columns:
    return records.column(field.name) if field.name in records.column_names else nulls_of(field.type, len(records))


def _outer(refusals: Sequence[Refusal], indices: Indices) -> list[Refusal]:
    return [refusal._replace(row=int(indices[refusal.row])) for refusal in refusals]


def _without(rows: pa.Table, assigned: Assigned) -> tuple[pa.Table, Indices]:
    if not assigned.refusals:
        return rows, assigned.spans
    kept = passed(assigned.refusals, rows.num_rows)
    return rows.filter(pa.array(kept)), assigned.spans[kept]
