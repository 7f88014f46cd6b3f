"""JSON values, by the record kernel where they are plain, all others by Arrow's reader.

Arrow's reader parses a whole block at once. Where it refuses a block, the block is halved; from a small one the values
that look wrong are taken out, until the refused values stand alone. The rest is parsed in large blocks. Schemas that
Arrow does not know (maps, dates inside other types) are read value by value by `json.values`, which decides alike and
takes some ten times as long.

A value passes if it is one JSON object in UTF-8, no declared key is there twice, its declared fields have their
declared types and fit them, and those that are not nullable are there. Undeclared fields are ignored. Dates and
timestamps are ISO 8601 strings of at most six digits of a second; a timestamp without an offset is UTC. Integers are
written without point and exponent. Numbers of a `double` or `float` are rounded to the nearest, as everywhere; one that
would become infinite is refused.

Why no value can hide in another: each begins with { and ends with }, a newline stands between two, and a raw
newline is not allowed inside a JSON string; so a value's end never falls inside an object, each gives at least one
row, and as many rows as values means one object each.

An object is plain if its declared fields are of simple types and need no second look: its keys have no escapes, its
numbers few digits, its times one form. The kernel refuses nothing, and leaves all others to Arrow's reader, which would
have given a plain one the same row, at a fraction of the rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millrace import kernel
from millrace.records.arrow_columns import TIMESTAMP_TYPE
from millrace_pipelines.arrow import (
    Column,
    Field,
    Indices,
    Octets,
    data_of,
    indices_array,
    memory_of,
    octets_of,
    offsets_of,
    texts_of,
)
from millrace_pipelines.warehouse.payload.conform import first_flaw
from millrace_pipelines.warehouse.payload.json.values import JsonValues
from millrace_pipelines.warehouse.payload.outcome import Decoded, Outcome, Part, Reason, Refusal, UnfitError, joined
from millrace_pipelines.warehouse.payload.types import children, column_of

if TYPE_CHECKING:
    from millrace.kernel._native import JsonColumn

KERNEL_TYPES: Mapping[pa.DataType, str] = {
    pa.int32(): "i",
    pa.int64(): "l",
    pa.float32(): "f",
    pa.float64(): "d",
    pa.bool_(): "b",
    pa.string(): "s",
    pa.date32(): "D",
    TIMESTAMP_TYPE: "t",
}
JSON_WHITESPACE = " \t\r\n"
MIN_BLOCK_BYTES = 1 << 10
SUSPECTED_AT_ONCE = 64
OF_DECLARED_FIELDS = {Reason.TYPE, Reason.RANGE, Reason.MISSING}
ROW_NUMBER = re.compile(r"\.? in row \d+$")
NOT_NUMBERS = (b"NaN", b"Inf")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def is_read_by_kernel(fields: Sequence[Field]) -> bool:
    """Returns whether the C kernel is compiled and can read the types of all these fields."""
    return kernel.native is not None and all(field.type in KERNEL_TYPES for field in fields)


def read_plain(values: pa.BinaryArray, fields: Sequence[Field], columns: pa.Schema) -> tuple[Part, Indices]:
    """Decodes plain JSON objects by the C kernel; returns their rows, and the indexes of the values it leaves."""
    bounds = offsets_of(values)
    declared = tuple((field.name.encode(), KERNEL_TYPES[field.type], not field.nullable) for field in fields)
    rows, left, read = kernel.native.read_json(bounds.data, memory_of(data_of(values)), declared)
    arrays = [_array(column.type, rows, buffers) for column, buffers in zip(columns, read, strict=True)]
    others: Indices = np.frombuffer(memoryview(left), np.int64)
    indices = np.arange(len(values)) if rows == len(values) else np.delete(np.arange(len(values)), others)
    return Part(indices, pa.Table.from_arrays(arrays, schema=columns)), others


def _array(data_type: pa.DataType, rows: int, column: JsonColumn) -> Column:
    nulls, *memories = column
    buffers = [pa.py_buffer(memory) if memory is not None else None for memory in memories]
    if not pa.types.is_string(data_type):
        buffers = [buffers[0], buffers[2]]
    return pa.Array.from_buffers(data_type, rows, buffers, nulls)


class JsonDecoder:
    """Decodes JSON values by declared fields; a field that is not `nullable` has to be there.

    It raises no error for a value: one that does not fit becomes a refusal.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = list(fields)
        self.columns = pa.schema([column_of(field) for field in fields])
        self._explain = JsonValues(fields)
        self._is_read_by_kernel = is_read_by_kernel(fields)
        self._is_read_by_arrow = all(_is_read_by_arrow(field.type, 0) for field in fields)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes each value of a binary array without nulls into columns; one that does not fit becomes a refusal."""
        if not self._is_read_by_arrow:
            return self._explain.decode(values)
        if not self._is_read_by_kernel:
            return joined(self._in_halves(values, np.arange(len(values))), self.columns)
        plain, indices = read_plain(values, self._fields, self.columns)
        return joined([plain, *self._in_halves(values.take(indices_array(indices)), indices)], self.columns)

    def _in_halves(self, values: pa.BinaryArray, indices: Indices) -> Iterator[Outcome]:
        if len(values) == 0:
            return
        try:
            yield Part(indices, self._parse(values))
        except (UnfitError, pa.ArrowInvalid) as error:
            if len(values) == 1:
                yield self._refusal(int(indices[0]), values, error)
            elif len(values) <= SUSPECTED_AT_ONCE and (suspects := self._explain.decode(values).refusals):
                yield from self._suspected(values, indices, suspects)
            else:
                half = len(values) // 2
                yield from self._in_halves(values.slice(0, half), indices[:half])
                yield from self._in_halves(values.slice(half), indices[half:])

    def _suspected(self, values: pa.BinaryArray, indices: Indices, suspects: Sequence[Refusal]) -> Iterator[Outcome]:
        """Yields the refusals in `suspects` that concern declared fields; has Arrow's reader decode other values."""
        rest = np.ones(len(values), np.bool_)
        for suspect in suspects:
            rest[suspect.row] = False
            if suspect.reason in OF_DECLARED_FIELDS:
                yield suspect._replace(row=int(indices[suspect.row]))
            else:
                yield from self._in_halves(values.slice(suspect.row, 1), indices[suspect.row : suspect.row + 1])
        yield from self._in_halves(values.filter(pa.array(rest, pa.bool_())), indices[rest])

    def _refusal(self, row: int, value: pa.BinaryArray, error: Exception) -> Refusal:
        """Returns the refusal of one value, worded by Python's reader, which names the field, else by the error."""
        explained = self._explain.decode(value).refusals
        return explained[0]._replace(row=row) if explained else Refusal(row, *_said(error))

    def _parse(self, values: pa.BinaryArray) -> pa.Table:
        """Returns the columns of values that all fit; raises UnfitError or ArrowInvalid where one does not."""
        texts = _texts(values.cast(pa.string()))
        if not _are_braced(texts):
            texts = _texts(pc.ascii_trim(texts, characters=JSON_WHITESPACE))
            if not _are_braced(texts):
                raise UnfitError(Reason.MALFORMED, "not a JSON object")
        lines = _lines(texts)
        table = _read_json(lines, self._wire_schema())
        if table.num_rows != len(values):
            raise UnfitError(Reason.MALFORMED, "more than one JSON object")
        _check_numbers(lines, texts)
        columns = table.select(self.columns.names).cast(self.columns)
        for field in self._fields:
            if (flaw := first_flaw(columns.column(field.name), field)) is not None:
                raise UnfitError(*flaw)
        return columns

    def _wire_schema(self) -> pa.Schema:
        """Returns the schema for Arrow's JSON reader, in which dates are strings, which are cast later."""
        return pa.schema(
            [pa.field(field.name, pa.string()) if pa.types.is_date(field.type) else field for field in self.columns]
        )


def _is_read_by_arrow(data_type: pa.DataType, depth: int) -> bool:
    if pa.types.is_struct(data_type):
        return all(_is_read_by_arrow(field.type, depth + 1) for field in children(data_type))
    if pa.types.is_list(data_type):
        return _is_read_by_arrow(data_type.value_type, depth + 1)
    return not pa.types.is_map(data_type) and not (depth and pa.types.is_date(data_type))


def _texts(column: Column) -> pa.StringArray:
    if not isinstance(column, pa.StringArray):
        raise TypeError(f"a column of {column.type}, not of texts")
    return column


def _are_braced(texts: pa.StringArray) -> bool:
    """Returns whether each text begins with { and ends with }."""
    bounds = offsets_of(texts)
    if not bool((np.diff(bounds) >= len("{}")).all()):
        return False
    data = octets_of(data_of(texts))
    return bool((data[bounds[:-1]] == ord("{")).all() and (data[bounds[1:] - 1] == ord("}")).all())


def _lines(texts: pa.StringArray) -> pa.Buffer:
    """Returns the texts one after the other, each ended by a newline."""
    lines = _texts(pc.binary_join_element_wise(texts, "", "\n"))  # type: ignore[call-overload]  # texts are columns, too
    bounds = offsets_of(lines)
    return data_of(lines).slice(int(bounds[0]), int(bounds[-1] - bounds[0]))


def _read_json(lines: pa.Buffer, schema: pa.Schema) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(lines),  # type: ignore[arg-type]  # as good as a file
        read_options=pj.ReadOptions(use_threads=False, block_size=max(lines.size + 1, MIN_BLOCK_BYTES)),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _check_numbers(lines: pa.Buffer, texts: pa.StringArray) -> None:
    """Raises UnfitError for NaN, Inf and Infinity outside of strings: Arrow's reader takes them, JSON has none."""
    octets = octets_of(lines)
    for word in NOT_NUMBERS:
        if not has_word(octets, word):
            continue
        for text in texts_of(texts.filter(pc.match_substring(texts, word.decode()))):
            if word.decode() in STRING.sub("", text):
                raise UnfitError(Reason.MALFORMED, f"{word.decode()} is no JSON number")


def has_word(octets: Octets, word: bytes) -> bool:
    """Returns whether a word of three letters occurs in the bytes.

    It looks for the last two letters, at even and at odd indexes, and for the first before: without a copy, and ten
    times as fast as `in`, which goes from byte to byte.
    """
    [ending] = np.frombuffer(word[1:], np.uint16)
    for start in (1, 2):
        pairs = octets[start : start + (len(octets) - start) // 2 * 2].view(np.uint16)
        begins = start - 1 + 2 * np.flatnonzero(pairs == ending)
        if (octets[begins] == word[0]).any():
            return True
    return False


def _said(error: Exception) -> tuple[Reason, str]:
    """Returns the reason and message of a refusal, from an error of Arrow's reader or of the checks after it."""
    if isinstance(error, UnfitError):
        return error.reason, str(error)
    return Reason.MALFORMED, ROW_NUMBER.sub("", str(error).removeprefix("JSON parse error: "))
