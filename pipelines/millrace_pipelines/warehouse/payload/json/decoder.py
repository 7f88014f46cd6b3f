"""JSON values, by the record kernel where they are plain, all others by Arrow's reader.

Arrow's reader parses a whole block at once. Where it refuses a block, the block is halved; from a small one the values
that look wrong are taken out, until the refused values stand alone. The rest is parsed in large blocks. Schemas that
Arrow does not know (maps, dates inside other types) are read value by value by Python's (`JsonValues`), which decides
alike and takes some ten times as long; there a map is an object whose keys are strings.

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

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

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
    values_of,
)
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.conform import first_flaw
from millrace_pipelines.warehouse.payload.outcome import Decoded, Outcome, Part, Reason, Refusal, UnfitError, joined
from millrace_pipelines.warehouse.payload.types import BEYOND, children, column_of, is_in_calendar, type_text

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


ExactJson: TypeAlias = "dict[str, ExactJson] | list[ExactJson] | str | int | Decimal | bool | None"
"""JSON whose fractions have all their digits."""

Convert = Callable[[ExactJson, str], object]
"""Turns a value, at the path that messages name, into what Arrow takes for its column; UnfitError where it can't be."""

Kind = TypeVar("Kind")
NEGATIVE_ZERO = Decimal("-0")  # the one of an integer's form, which JSON has too
KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", Decimal: "number"}


class JsonValues:
    """Decodes JSON values by declared fields in Python, value by value."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self.columns = pa.schema([column_of(field) for field in fields])
        self._fields = [(field.name, _converter(field)) for field in fields]

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes each value of a binary array without nulls into columns; one that does not fit becomes a refusal."""
        indices: list[int] = []
        rows: list[list[object]] = []
        refusals: list[Refusal] = []
        for row, value in enumerate(values_of(values)):
            try:
                rows.append(self._row(value))
                indices.append(row)
            except UnfitError as error:
                refusals.append(Refusal(row, error.reason, str(error)))
        by_column = list(zip(*rows, strict=True)) if rows else [() for _ in self._fields]
        arrays = [pa.array(column, field.type) for column, field in zip(by_column, self.columns, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=self.columns)
        return joined([Part(np.array(indices, np.int64), table), *refusals], self.columns)

    def _row(self, value: bytes) -> list[object]:
        found = parse(value)
        if not isinstance(found, dict):
            raise UnfitError(Reason.MALFORMED, "not a JSON object")
        return [convert(found.get(name), name) for name, convert in self._fields]


def parse(value: bytes) -> ExactJson:
    """Parses a JSON value in UTF-8; fractions become Decimal.

    Raises UnfitError where the value is not JSON, or has a key twice.
    """
    try:
        text = value.decode("utf-8")
        if text.startswith("\ufeff"):
            raise UnfitError(Reason.MALFORMED, "not a JSON object")
        found: ExactJson = json.loads(
            text, object_pairs_hook=_object, parse_float=Decimal, parse_int=_whole, parse_constant=_no_constant
        )
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False, default=str).encode()
    except UnicodeDecodeError:
        raise UnfitError(Reason.MALFORMED, "Invalid UTF8 sequence") from None
    except UnicodeEncodeError:
        raise UnfitError(Reason.MALFORMED, "the surrogate pair in a string is invalid") from None
    except RecursionError:
        raise UnfitError(Reason.MALFORMED, "nested too deep") from None
    except json.JSONDecodeError as error:
        is_more = error.msg == "Extra data"
        message = "more than one JSON object" if is_more else f"not a JSON object: {error.msg} at character {error.pos}"
        raise UnfitError(Reason.MALFORMED, message) from None
    except (ValueError, InvalidOperation) as error:
        raise UnfitError(Reason.MALFORMED, str(error)) from None
    return found


def _object(pairs: list[tuple[str, ExactJson]]) -> dict[str, ExactJson]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UnfitError(Reason.DUPLICATE, f"field {twice} is there twice")
    return found


def _whole(digits: str) -> int | Decimal:
    return NEGATIVE_ZERO if digits == "-0" else int(digits)


def _no_constant(word: str) -> NoReturn:
    raise UnfitError(Reason.MALFORMED, f"{word} is no JSON number")


def _converter(field: Field) -> Convert:
    convert, nullable = _convert_type(field.type), field.nullable

    def present(value: ExactJson, path: str) -> object:
        if value is None:
            if nullable:
                return None
            raise UnfitError(Reason.MISSING, f"field {path} is missing or null")
        return convert(value, path)

    return present


def _convert_type(data_type: pa.DataType) -> Convert:
    if pa.types.is_struct(data_type):
        return _struct(children(data_type))
    if pa.types.is_list(data_type):
        return _list(_converter(data_type.value_field))
    if pa.types.is_map(data_type):
        return _map(data_type.key_field, data_type.item_field)
    if pa.types.is_decimal(data_type):
        return _decimal(data_type.precision, data_type.scale)
    if pa.types.is_temporal(data_type):
        return _temporal(data_type)
    if data_type not in PRIMITIVES:
        raise SchemaError(f"JSON has no {type_text(data_type)}")
    return PRIMITIVES[data_type]


def _of(kind: type[Kind], value: ExactJson, path: str) -> Kind:
    """Returns a value that is of this kind; raises UnfitError for another kind; a boolean is no integer."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _changed(KINDS[kind], value, path)
    return value


def _changed(declared: str, value: ExactJson, path: str) -> UnfitError:
    return UnfitError(Reason.TYPE, f"field {path}: expected {declared}, found {KINDS[type(value)]}")


def _struct(fields: Sequence[Field]) -> Convert:
    inside = [(field.name, _converter(field)) for field in fields]

    def convert(value: ExactJson, path: str) -> object:
        found = _of(dict, value, path)
        return {name: child(found.get(name), f"{path}/{name}") for name, child in inside}

    return convert


def _list(element: Convert) -> Convert:
    return lambda value, path: [element(item, f"{path}/[]") for item in _of(list, value, path)]


def _map(keys: Field, items: Field) -> Convert:
    if not pa.types.is_string(keys.type):
        raise SchemaError("the keys of a JSON object are strings")
    item = _converter(items)
    return lambda value, path: [(key, item(entry, f"{path}/{key}")) for key, entry in _of(dict, value, path).items()]


def _integer(bits: int) -> Convert:
    limit = 1 << bits - 1

    def convert(value: ExactJson, path: str) -> int:
        if value is NEGATIVE_ZERO:
            return 0
        if isinstance(value, Decimal):
            raise UnfitError(Reason.RANGE, f"field {path}: {value} is not an integer")
        number = _of(int, value, path)
        if not -limit <= number < limit:
            raise UnfitError(Reason.RANGE, f"field {path}: {number} does not fit {bits} bits")
        return number

    return convert


def _single(number: int | Decimal) -> float:
    """Returns the float of 32 bits that is nearest to a number's digits; by way of 64 bits it might be another."""
    found: float = pa.scalar(str(number)).cast(pa.float32()).as_py()
    return found


def _floating(nearest: Callable[[int | Decimal], float]) -> Convert:
    def convert(value: ExactJson, path: str) -> float:
        if not isinstance(value, int | Decimal) or isinstance(value, bool):
            raise _changed("number", value, path)
        try:
            number = nearest(value)
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise UnfitError(Reason.RANGE, f"field {path}: {value} is too big")
        return number

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    quantum = Decimal(1).scaleb(-scale)

    def convert(value: ExactJson, path: str) -> Decimal:
        if not isinstance(value, int | Decimal | str) or isinstance(value, bool):
            raise _changed("number", value, path)
        try:
            with localcontext(prec=precision) as context:
                context.traps[InvalidOperation] = True
                number = Decimal(value)
                if (fixed := number.quantize(quantum)) == number:
                    return fixed
        except InvalidOperation:
            pass
        raise UnfitError(Reason.RANGE, f"field {path}: {value} does not fit decimal({precision},{scale})")

    return convert


def _temporal(data_type: pa.DataType) -> Convert:
    suffixes = ("", "Z") if pa.types.is_timestamp(data_type) else ("",)

    def convert(value: ExactJson, path: str) -> object:
        text = _of(str, value, path)
        for suffix in suffixes:
            try:
                found = pa.array([text + suffix]).cast(data_type)
            except pa.ArrowInvalid:
                continue
            if not is_in_calendar(found):
                raise UnfitError(Reason.RANGE, f"field {path}: {text!r} is {BEYOND}")
            return found[0]
        raise UnfitError(Reason.RANGE, f"field {path}: {text!r} is no {type_text(data_type)}")

    return convert


PRIMITIVES: Mapping[pa.DataType, Convert] = {
    pa.int32(): _integer(32),
    pa.int64(): _integer(64),
    pa.float32(): _floating(_single),
    pa.float64(): _floating(float),
    pa.string(): lambda value, path: _of(str, value, path),
    pa.bool_(): lambda value, path: _of(bool, value, path),
}
