"""Splits records in the raw envelope into rows, with their typed columns and partitions, and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millrace_pipelines.arrow import Column, Places, binaries, combined
from millrace_pipelines.spark.envelope import ENVELOPE_FIELDS
from millrace_pipelines.warehouse.payload.dead_letter import DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.payload.event_time import Placed
from millrace_pipelines.warehouse.payload.outcome import Refusal
from millrace_pipelines.warehouse.payload.payload import Payload


class Split(NamedTuple):
    """Rows, with their partition in spans of event time; letters to be written; and how many records became what.

    `spans` is None for a table without event time. `dead_letters` counts the letters written before, too.
    """

    rows: pa.Table
    spans: Places | None
    letters: pa.Table
    dead_letters: int
    late: int


class Splitter:
    """Splits the records of one task.

    Args:
        payload: What gives values their columns; None for the raw envelope.
        known: Sorted offsets of records that are dead letters already, and stay so.
        load_id: The load that letters are marked with.
        ledger: The ledger that their offsets belong to.
    """

    def __init__(self, payload: Payload | None, known: Places, load_id: str, ledger: str) -> None:
        self._payload = payload
        self._known = known
        self._load_id, self._ledger = load_id, ledger
        self._taken: set[int] = set()

    def split(self, envelope: pa.Table) -> Split:
        """Splits some records; RegistryError where their schema can't be asked for."""
        if self._payload is None:
            return Split(envelope, None, DEAD_LETTER_SCHEMA.empty_table(), 0, 0)
        is_known = np.isin(envelope.column("offset").to_numpy(), self._known)
        if not is_known.any():
            return self._split(self._payload, envelope)
        split = self._split(self._payload, envelope.filter(pa.array(~is_known)))
        return split._replace(dead_letters=split.dead_letters + int(is_known.sum()))

    def _split(self, payload: Payload, envelope: pa.Table) -> Split:
        decoded = payload.decode(binaries(combined(envelope.column("value"))))
        passed = decoded.passed(envelope.num_rows)
        kept = envelope if passed.all() else envelope.filter(pa.array(passed))
        rows = pa.Table.from_arrays([*kept.columns, *decoded.columns.columns], schema=payload.table_schema)
        if payload.schema.event_time is None:
            letters = self._letters(envelope, decoded.refusals)
            return Split(rows, None, letters, letters.num_rows, 0)
        placed = payload.schema.event_time.place(rows, self._taken)
        letters = self._letters(envelope, [*decoded.refusals, *_outer(placed.refusals, np.flatnonzero(passed))])
        rows, spans = _without(rows, placed)
        return Split(rows, spans, letters, letters.num_rows, placed.late)

    def _letters(self, envelope: pa.Table, refusals: Sequence[Refusal]) -> pa.Table:
        if not refusals:
            return DEAD_LETTER_SCHEMA.empty_table()
        ordered = sorted(refusals, key=lambda refusal: refusal.place)
        count = len(ordered)
        why: list[Column] = [
            pa.array([refusal.message for refusal in ordered], pa.string()),
            pa.array([refusal.reason.value for refusal in ordered], pa.string()),
            pa.array([refusal.schema_id for refusal in ordered], pa.int64()),
            pa.repeat(pa.scalar(self._load_id, pa.string()), count),
            pa.repeat(pa.scalar(self._ledger, pa.string()), count),
            pa.nulls(count, pa.int64()),
        ]
        refused = envelope.take(pa.array([refusal.place for refusal in ordered], pa.int64()))
        columns = [refused.column(field.name) for field in ENVELOPE_FIELDS]
        return pa.Table.from_arrays([*columns, *why], schema=DEAD_LETTER_SCHEMA)


def _outer(refusals: Sequence[Refusal], places: Places) -> list[Refusal]:
    return [refusal._replace(place=int(places[refusal.place])) for refusal in refusals]


def _without(rows: pa.Table, placed: Placed) -> tuple[pa.Table, Places]:
    if not placed.refusals:
        return rows, placed.spans
    kept = np.ones(rows.num_rows, np.bool_)
    kept[[refusal.place for refusal in placed.refusals]] = False
    return rows.filter(pa.array(kept)), placed.spans[kept]
