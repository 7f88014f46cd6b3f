"""JSON values one by one, by Python's reader: for the types that Arrow's does not know.

The rules are those of `json.decoder`; a map is an object whose keys are strings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import NoReturn, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from millrace_pipelines.arrow import Field, values_of
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.outcome import Decoded, Part, Reason, Refusal, UnfitError, joined
from millrace_pipelines.warehouse.payload.types import BEYOND, children, column_of, is_in_calendar, type_text

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
