"""Columns of a writer's schema brought to the table's: widened where nothing is lost, null where the writer has none.

A column that can't be brought over without loss stops its own rows only: each is refused, with the field's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_pipelines.warehouse.payload.outcome import Flags, Reason, Refusal, combined, refused_where
from millrace_pipelines.warehouse.payload.types import Field, children, type_text

Flaw = tuple[Reason, str]


def first_flaw(column: Any, field: Field, path: str = "") -> Flaw | None:
    """What is wrong with a column of a declared field, if anything: a null where none may be, a number not finite."""
    path = f"{path}/{field.name}" if path else field.name
    if not field.nullable and column.null_count:
        return Reason.MISSING, f"field {path} is missing or null"
    if pa.types.is_floating(field.type):
        finite = pc.all(pc.is_finite(column)).as_py()
        return (Reason.RANGE, f"field {path}: the number is too big") if finite is False else None
    if pa.types.is_decimal(field.type):
        return None if _fits(column, field.type) else (Reason.RANGE, f"field {path}: the number is too big")
    whole: Any = combined(column)
    if pa.types.is_struct(field.type):
        present = whole.drop_null().flatten()
        flaws = (first_flaw(*pair, path) for pair in zip(present, children(field.type), strict=True))
        return next((flaw for flaw in flaws if flaw is not None), None)
    if pa.types.is_list(field.type):
        return first_flaw(whole.flatten(), field.type.value_field, path)
    return None


def _fits(column: Any, data_type: Any) -> bool:
    """Arrow's JSON reader gives a decimal more digits than its type has, where it scales it up."""
    limit = Decimal(1).scaleb(data_type.precision - data_type.scale)
    bounds: Any = pc.min_max(column).as_py()
    return bounds["min"] is None or (bounds["min"] > -limit and bounds["max"] < limit)


def conform(table: pa.Table, target: pa.Schema, required: Sequence[str]) -> tuple[pa.Table, list[Refusal]]:
    """The table with the target's columns, and a refusal for each row that can't have them.

    Args:
        table: Columns under the writer's names and types.
        target: The table's columns.
        required: Columns that must not be null.
    """
    refusals: dict[int, Refusal] = {}
    columns: list[pa.Array[Any]] = []
    for field in target:
        if field.name in table.column_names:
            column, found = _converted(combined(table.column(field.name)), field.type, field.name)
        else:
            column, found = pa.nulls(table.num_rows, field.type), []
        columns.append(column)
        if field.name in required and column.null_count:
            found += refused_where(_is_null(column), Reason.MISSING, f"field {field.name} is missing or null")
        for refusal in found:
            refusals.setdefault(refusal.place, refusal)
    conformed = pa.Table.from_arrays(columns, schema=target)
    if not refusals:
        return conformed, []
    passed = np.ones(table.num_rows, np.bool_)
    passed[list(refusals)] = False
    return conformed.filter(pa.array(passed)), list(refusals.values())


def _is_null(column: Any) -> Flags:
    flags: Flags = column.is_null().to_numpy(zero_copy_only=False)
    return flags


def _converted(column: Any, target: Any, path: str) -> tuple[pa.Array[Any], list[Refusal]]:
    """The column in the target's type, and a refusal for each value that can't be; nested types inside out."""
    source = column.type
    if is_lossless(source, target):
        return column if source.equals(target) else column.cast(target), []
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _converted_struct(column, target, path)
    if pa.types.is_list(source) and pa.types.is_list(target):
        return _converted_list(column, target, path)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _converted_map(column, target, path)
    if pa.types.is_integer(source) and pa.types.is_integer(target):
        return _narrowed(column, target, path)
    message = f"field {path}: {type_text(source)} where the table has {type_text(target)}"
    return pa.nulls(len(column), target), list(refused_where(~_is_null(column), Reason.TYPE, message))


def is_lossless(source: Any, target: Any) -> bool:
    """Whether every value of one type is a value of the other: the widenings of Delta's type widening, and equality.

    Source: the Delta transaction log protocol, "Type Widening".
    """
    if source.equals(target):
        return True
    if source == pa.int32():
        return bool(target in (pa.int64(), pa.float64()) or _has_digits(target, 10))
    if source == pa.int64():
        return _has_digits(target, 20)
    if source == pa.float32():
        return bool(target == pa.float64())
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        return bool(target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale)
    return False


def _has_digits(target: Any, digits: int) -> bool:
    return pa.types.is_decimal(target) and target.precision - target.scale >= digits


def _narrowed(column: Any, target: Any, path: str) -> tuple[pa.Array[Any], list[Refusal]]:
    limit = 2 ** (target.bit_width - 1)
    fits = pc.and_(pc.greater_equal(column, -limit), pc.less(column, limit)).fill_null(True)
    unfit = ~fits.to_numpy(zero_copy_only=False)
    kept = pc.if_else(fits, column, pa.scalar(None, column.type)).cast(target)
    return kept, list(refused_where(unfit, Reason.RANGE, f"field {path}: a number does not fit {type_text(target)}"))


def _converted_struct(column: Any, target: Any, path: str) -> tuple[pa.Array[Any], list[Refusal]]:
    absent = column.is_null()
    arrays: list[pa.Array[Any]] = []
    refusals: list[Refusal] = []
    for field in children(target):
        index = column.type.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(len(column), field.type))
            continue
        inside = pc.if_else(absent, pa.scalar(None, column.type.field(index).type), column.field(index))
        array, found = _converted(inside, field.type, f"{path}/{field.name}")
        arrays.append(array)
        refusals += found
    return pa.StructArray.from_arrays(arrays, fields=list(children(target)), mask=absent), refusals


def _converted_list(column: Any, target: Any, path: str) -> tuple[pa.Array[Any], list[Refusal]]:
    items, found = _converted(column.flatten(), target.value_type, f"{path}/[]")
    lists: Any = pa.ListArray
    return lists.from_arrays(_offsets(column), items, type=target, mask=column.is_null()), list(
        _at_parents(column, found)
    )


def _converted_map(column: Any, target: Any, path: str) -> tuple[pa.Array[Any], list[Refusal]]:
    entries: Any = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    flat = entries.flatten()
    keys, refused_keys = _converted(flat.field(0), target.key_type, f"{path}/key")
    items, refused_items = _converted(flat.field(1), target.item_type, f"{path}/value")
    maps: Any = pa.MapArray
    return maps.from_arrays(_offsets(entries), keys, items, type=target, mask=column.is_null()), list(
        _at_parents(entries, refused_keys + refused_items)
    )


def _offsets(column: Any) -> pa.Array[Any]:
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _at_parents(column: Any, refusals: Sequence[Refusal]) -> Iterator[Refusal]:
    """Refusals of a list's elements as refusals of the rows that hold them."""
    if refusals:
        parents = pc.list_parent_indices(column).to_numpy()
        for refusal in refusals:
            yield refusal._replace(place=int(parents[refusal.place]))
