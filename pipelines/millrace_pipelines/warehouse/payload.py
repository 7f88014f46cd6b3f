"""JSON values to typed columns, in the task.

A whole block is parsed by Arrow's JSON reader at once. Where it refuses, the block is halved until the refused
values stand alone: they become dead letters, and the rest is parsed in the largest blocks that pass. Whether
a value passes depends on nothing but the value and the schema, so a repeated load decides alike.

A value passes if it is one JSON object in UTF-8, its declared fields have their declared types, and those
that are not nullable are there. Undeclared fields are ignored. Dates and timestamps are ISO 8601 strings; a timestamp
without an offset is UTC. A null value (tombstone) passes, with all typed columns null.

Why no value can hide in another: each begins with { and ends with }, a newline stands between two, and a raw
newline is not allowed inside a JSON string; so a value's end never falls inside an object, each gives at least one
row, and as many rows as values means one object each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millrace_pipelines.warehouse.schema import PayloadSchema

JSON_WHITESPACE = " \t\r\n"
MIN_BLOCK_BYTES = 1 << 10
CHANGED_TYPE = re.compile(r"Column\(/(?P<field>.*)\) changed from (?P<declared>\w+) to (?P<found>\w+)")
ROW_NUMBER = re.compile(r"\.? in row \d+$")


class Payloads(NamedTuple):
    """Typed columns of the values that pass, and the reason for each that doesn't.

    `columns` has a row for each True of `passed`, in order.
    """

    columns: pa.Table
    passed: np.typing.NDArray[np.bool_]
    errors: list[str]


class _Refused(NamedTuple):
    """A value that does not pass, at its place among the values."""

    place: int
    reason: str


def parse_payloads(values: pa.Array[Any], schema: PayloadSchema) -> Payloads:
    """Parse a binary column of JSON values, null where a record is a tombstone."""
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    tables: list[pa.Table] = [schema.arrow.empty_table()]
    refused: list[_Refused] = []
    for outcome in _parse_in_halves(values.drop_null(), 0, schema):
        if isinstance(outcome, _Refused):
            refused.append(outcome)
        else:
            tables.append(outcome)
    passed = np.ones(len(values), np.bool_)
    passed[present[[value.place for value in refused]]] = False
    columns = _with_tombstones(pa.concat_tables(tables), values.is_valid().filter(pa.array(passed)))
    return Payloads(columns, passed, [value.reason for value in refused])


def _with_tombstones(columns: pa.Table, valid: Any) -> pa.Table:
    """A row of nulls put in wherever `valid` is false."""
    is_valid = valid.to_numpy(zero_copy_only=False)
    if bool(is_valid.all()):
        return columns
    rows = np.cumsum(is_valid) - 1
    return columns.take(pa.array(rows, pa.int64(), mask=~is_valid))


def _parse_in_halves(values: Any, first: int, schema: PayloadSchema) -> Iterator[pa.Table | _Refused]:
    if len(values) == 0:
        return
    try:
        yield _parse(values, schema)
    except pa.ArrowInvalid as error:
        if len(values) == 1:
            yield _Refused(first, _reason(str(error)))
            return
        half = len(values) // 2
        yield from _parse_in_halves(values.slice(0, half), first, schema)
        yield from _parse_in_halves(values.slice(half), first + half, schema)


def _parse(values: Any, schema: PayloadSchema) -> pa.Table:
    """Typed columns of values that all pass; ArrowInvalid where one doesn't."""
    texts = pc.ascii_trim(values.cast(pa.string()), characters=JSON_WHITESPACE)
    if not (pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py()):
        raise pa.ArrowInvalid("not a JSON object")
    table = _read_json(_lines(texts), _wire_schema(schema))
    if table.num_rows != len(values):
        raise pa.ArrowInvalid("more than one JSON object")
    for field in schema.fields:
        if not field.nullable and table.column(field.name).null_count:
            raise pa.ArrowInvalid(f"field {field.name} is missing or null")
    return table.select(schema.arrow.names).cast(schema.arrow)


def _lines(texts: Any) -> pa.Buffer:
    """All values one after the other, each ended by a newline."""
    lines = pc.binary_join_element_wise(texts, "", "\n")
    bounds = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    data: pa.Buffer = lines.buffers()[2]
    return data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))


def _wire_schema(schema: PayloadSchema) -> pa.Schema:
    """What the JSON reader is asked for: it knows no dates, so they are read as strings and cast."""
    fields: list[pa.Field[Any]] = [
        pa.field(field.name, pa.string() if field.type == "date" else schema.arrow.field(field.name).type)
        for field in schema.fields
    ]
    return pa.schema(fields)


def _read_json(lines: pa.Buffer, schema: pa.Schema) -> pa.Table:
    source: Any = pa.BufferReader(lines)
    return pj.read_json(
        source,
        read_options=pj.ReadOptions(use_threads=False, block_size=max(lines.size + 1, MIN_BLOCK_BYTES)),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _reason(message: str) -> str:
    """Arrow's message in the words of a declared schema."""
    if changed := CHANGED_TYPE.search(message):
        return f"field {changed['field']}: expected {changed['declared']}, found {changed['found']}"
    return ROW_NUMBER.sub("", message.removeprefix("JSON parse error: "))
