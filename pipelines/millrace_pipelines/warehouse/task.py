"""What one Spark task does: fetch a range, decode it, write Parquet, answer with what it wrote.

Tasks repeat safely: each attempt writes files of its own, and the driver commits those of the one attempt whose answer
it got.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.files import DataFileWriter
from millrace_pipelines.warehouse.payload import parse_payloads
from millrace_pipelines.warehouse.plan import OffsetRange
from millrace_pipelines.warehouse.schema import DEAD_LETTER_SCHEMA, PayloadSchema, table_schema
from millrace_pipelines.warehouse.table import DataFile

ReadRange = Callable[[str, int, int, int], Iterator[pa.RecordBatch]]
"""Topic, partition, from_offset, until_offset to records in the order of their offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """What all tasks of one load share.

    `dead_letters_from` has, by partition, the first offset whose dead letter is not yet in its table.
    """

    load_id: str
    topic: str
    table_dir: str
    dead_letters_dir: str
    payload: PayloadSchema | None
    dead_letters_from: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What one task read and wrote; `dead_letters` counts those read, written before or not."""

    range: OffsetRange
    records: int
    dead_letters: int
    value_bytes: int
    rows_file: DataFile | None
    dead_letters_file: DataFile | None

    def to_json(self) -> str:
        """As it travels to the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskResult:
        """As the driver reads it."""
        fields = json.loads(text)
        for name in ("rows_file", "dead_letters_file"):
            fields[name] = fields[name] and DataFile(**fields[name])
        return cls(**(fields | {"range": OffsetRange(*fields["range"])}))


def load_range(span: OffsetRange, spec: LoadSpec, read: ReadRange, *, task: int, fs: FileSystem) -> TaskResult:
    """Read the range and write its rows and dead letters; raises what reading and writing raise."""
    records = dead_letters = value_bytes = 0
    first_unwritten = spec.dead_letters_from.get(span.partition, span.from_offset)
    with (
        DataFileWriter(spec.table_dir, spec.load_id, task, table_schema(spec.payload), fs) as rows_writer,
        DataFileWriter(spec.dead_letters_dir, spec.load_id, task, DEAD_LETTER_SCHEMA, fs) as dead_writer,
    ):
        for batch in read(spec.topic, span.partition, span.from_offset, span.until_offset):
            rows, dead = _split(_envelope(batch, spec.topic, span.partition), spec.payload)
            rows_writer.write(rows)
            dead_writer.write(_at_or_above(dead, first_unwritten))
            records += batch.num_rows
            dead_letters += dead.num_rows
            value_bytes += _value_bytes(batch)
        return TaskResult(
            range=span,
            records=records,
            dead_letters=dead_letters,
            value_bytes=value_bytes,
            rows_file=rows_writer.finish(),
            dead_letters_file=dead_writer.finish(),
        )


def _envelope(records: pa.RecordBatch, topic: str, partition: int) -> pa.Table:
    constants: list[pa.Array[Any]] = [
        pa.repeat(pa.scalar(topic, pa.string()), records.num_rows),
        pa.repeat(pa.scalar(partition, pa.int32()), records.num_rows),
    ]
    return pa.Table.from_arrays([*constants, *records.columns], schema=table_schema(None))


def _split(envelope: pa.Table, payload: PayloadSchema | None) -> tuple[pa.Table, pa.Table]:
    """(rows with typed columns, dead letters with their errors)."""
    if payload is None:
        return envelope, DEAD_LETTER_SCHEMA.empty_table()
    values = envelope.column("value").combine_chunks()
    parsed = parse_payloads(values, payload)
    passed = envelope.filter(pa.array(parsed.passed))
    rows = pa.Table.from_arrays([*passed.columns, *parsed.columns.columns], schema=table_schema(payload))
    refused = envelope.filter(pa.array(~parsed.passed))
    errors = pa.array(parsed.errors, pa.string())
    return rows, pa.Table.from_arrays([*refused.columns, errors], schema=DEAD_LETTER_SCHEMA)


def _value_bytes(records: pa.RecordBatch) -> int:
    values: Any = records.column("value")
    return pc.sum(pc.binary_length(values)).as_py() or 0


def _at_or_above(table: pa.Table, first_offset: int) -> pa.Table:
    offsets = table.column("offset").to_numpy()
    return table.filter(pa.array(offsets >= first_offset))
