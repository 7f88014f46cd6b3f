"""How the columns of a writer's schema and a table's meet: the table's follow a schema that changed, and values them.

    the schema's field                       the table's column
    is new, at the top or in a struct        is added, null in earlier rows
    is wider (int → long, …)                 is widened, and the files are rewritten in the same commit
    is narrower                              stays; values of the field fit it
    is gone                                  stays, null in later rows
    is of another type                       stops the load, or stays: values that don't fit become dead letters

Widenings are those of Delta's type widening that lose nothing: integer → long, double, decimal(10+s,s);
long → decimal(20+s,s); float → double; decimal → decimal with no fewer digits before and after the point.

Decoded columns are brought to the table's: widened without loss, and null where the writer has none. Values that can't
be brought over without loss are refused, each with the field's name; other rows pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from millrace_pipelines.arrow import (
    Column,
    Columns,
    Field,
    Lists,
    MapType,
    combined,
    flags_of,
    list_column,
    map_column,
    nulls_of,
    offsets_array,
)
from millrace_pipelines.warehouse.errors import SchemaChangedError
from millrace_pipelines.warehouse.payload.outcome import Reason, Refusal, passed, refused_where
from millrace_pipelines.warehouse.payload.types import (
    BEYOND,
    children,
    column_of,
    is_in_calendar,
    list_of,
    loosened,
    map_of,
    type_text,
)

Flaw = tuple[Reason, str]


def first_flaw(column: Column | Columns, field: Field, path: str = "") -> Flaw | None:
    """Returns what is wrong with a column of a declared field: a null where none may be, or a value out of range."""
    path = f"{path}/{field.name}" if path else field.name
    data_type = field.type
    if not field.nullable and column.null_count:
        return Reason.MISSING, f"field {path} is missing or null"
    if (beyond := _first_beyond(column, data_type)) is not None:
        return Reason.RANGE, f"field {path}: {beyond}"
    whole = combined(column)
    if isinstance(whole, pa.StructArray) and pa.types.is_struct(data_type):
        present = whole.drop_null().flatten()
        flaws = (first_flaw(*pair, path) for pair in zip(present, children(data_type), strict=True))
        return next((flaw for flaw in flaws if flaw is not None), None)
    if isinstance(whole, pa.ListArray) and pa.types.is_list(data_type):
        return first_flaw(whole.flatten(), data_type.value_field, path)
    return None


def _first_beyond(column: Column | Columns, data_type: pa.DataType) -> str | None:
    """Returns what is wrong with a column: a number not finite or too long, or a time beyond the calendar."""
    if pa.types.is_floating(data_type) and pc.all(pc.is_finite(column)).as_py() is False:
        return "the number is too big"
    if pa.types.is_decimal(data_type) and not _fits(column, data_type.precision - data_type.scale):
        return "the number is too big"
    return BEYOND if pa.types.is_temporal(data_type) and not is_in_calendar(column) else None


def _fits(column: Column | Columns, digits: int) -> bool:
    """Returns whether all numbers have at most `digits` digits before the point.

    Arrow's JSON reader may return decimals with more digits than their type has, where it has scaled them up.
    """
    limit = Decimal(1).scaleb(digits)
    low, high = (pc.min_max(column)[name].as_py() for name in ("min", "max"))
    return low is None or -limit < low <= high < limit


def conform(table: pa.Table, target: pa.Schema, required: Sequence[str]) -> tuple[pa.Table, list[Refusal]]:
    """Returns the rows that fit with the target's columns, and a refusal for each row that does not."""
    refusals: dict[int, Refusal] = {}
    columns: list[Column] = []
    for field in target:
        if field.name in table.column_names:
            column, found = _converted(combined(table.column(field.name)), field.type, field.name)
        else:
            column, found = nulls_of(field.type, table.num_rows), []
        columns.append(column)
        if field.name in required and column.null_count:
            found += refused_where(flags_of(column.is_null()), Reason.MISSING, f"field {field.name} is missing or null")
        for refusal in found:
            refusals.setdefault(refusal.row, refusal)
    conformed = pa.Table.from_arrays(columns, schema=target)
    if not refusals:
        return conformed, []
    refused = list(refusals.values())
    return conformed.filter(pa.array(passed(refused, table.num_rows))), refused


def _converted(column: Column, target: pa.DataType, path: str) -> tuple[Column, list[Refusal]]:
    """Returns a column in the target's type, inner types first, and a refusal for each value that it can't hold."""
    source = column.type
    if is_lossless(source, target):
        return column if source.equals(target) else column.cast(target), []
    if isinstance(column, pa.StructArray) and pa.types.is_struct(target):
        return _converted_struct(column, target, path)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _converted_map(column, source, target, path)
    if isinstance(column, pa.ListArray) and pa.types.is_list(source) and pa.types.is_list(target):
        return _converted_list(column, target, path)
    if pa.types.is_integer(source) and pa.types.is_integer(target):
        return _narrowed(column, target, path)
    message = f"field {path}: {type_text(source)} where the table has {type_text(target)}"
    refused = refused_where(~flags_of(column.is_null()), Reason.TYPE, message)
    return nulls_of(target, len(column)), list(refused)


def is_lossless(source: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether every value of type `source` is one of `target`: equal types, and Delta's widenings.

    Source: the Delta transaction log protocol, "Type Widening".
    """
    if source.equals(target):
        return True
    if source == pa.int32():
        return target in (pa.int64(), pa.float64()) or _has_digits(target, 10)
    if source == pa.int64():
        return _has_digits(target, 20)
    if source == pa.float32():
        return target == pa.float64()
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        digits = source.precision - source.scale
        return bool(target.scale >= source.scale and target.precision - target.scale >= digits)
    return False


def _has_digits(target: pa.DataType, digits: int) -> bool:
    return pa.types.is_decimal(target) and target.precision - target.scale >= digits


def _narrowed(column: Column, target: pa.DataType, path: str) -> tuple[Column, list[Refusal]]:
    limit = 2 ** (target.bit_width - 1)
    fits = pc.and_(pc.greater_equal(column, -limit), pc.less(column, limit)).fill_null(True)
    unfit = ~fits.to_numpy(zero_copy_only=False)
    kept: Column = pc.if_else(fits, column, pa.scalar(None, column.type))
    message = f"field {path}: a number does not fit {type_text(target)}"
    return kept.cast(target), list(refused_where(unfit, Reason.RANGE, message))


def _converted_struct(column: pa.StructArray, target: pa.StructType, path: str) -> tuple[Column, list[Refusal]]:
    absent = column.is_null()
    arrays: list[Column] = []
    refusals: list[Refusal] = []
    for field in children(target):
        index = column.type.get_field_index(field.name)
        if index < 0:
            arrays.append(nulls_of(field.type, len(column)))
            continue
        inside = pc.if_else(absent, pa.scalar(None, column.type.field(index).type), column.field(index))
        array, found = _converted(inside, field.type, f"{path}/{field.name}")
        arrays.append(array)
        refusals += found
    return pa.StructArray.from_arrays(arrays, fields=list(children(target)), mask=absent), refusals


def _converted_list(column: Lists, target: pa.ListType[pa.DataType], path: str) -> tuple[Column, list[Refusal]]:
    items, found = _converted(column.flatten(), target.value_type, f"{path}/[]")
    lists = list_column(target, _offsets(column), items, absent=column.is_null())
    return lists, list(_at_parents(column, found))


def _converted_map(column: Column, source: MapType, target: MapType, path: str) -> tuple[Column, list[Refusal]]:
    entries = cast("Lists", column.cast(pa.list_(pa.struct([source.key_field, source.item_field]))))
    flat = cast("pa.StructArray", entries.flatten())
    keys, refused_keys = _converted(flat.field(0), target.key_type, f"{path}/key")
    items, refused_items = _converted(flat.field(1), target.item_type, f"{path}/value")
    maps = map_column(target, _offsets(entries), keys, items, absent=column.is_null())
    return maps, list(_at_parents(entries, refused_keys + refused_items))


def _offsets(column: Lists) -> pa.Int32Array:
    return offsets_array(column.value_lengths().fill_null(0).to_numpy())


def _at_parents(column: Lists, refusals: Sequence[Refusal]) -> Iterator[Refusal]:
    """Yields refusals of the rows in whose lists an element was refused, from those of the elements."""
    if refusals:
        parents = column.value_parent_indices().to_numpy()
        for refusal in refusals:
            yield refusal._replace(row=int(parents[refusal.row]))


class Evolution(NamedTuple):
    """A table's new payload columns, and the paths of those that are added and widened."""

    columns: pa.Schema
    added: tuple[str, ...]
    widened: tuple[str, ...]


class _Change(NamedTuple):
    data_type: pa.DataType
    added: list[str]
    widened: list[str]


def evolve(columns: pa.Schema, fields: Sequence[Field], *, keep_types: bool) -> Evolution:
    """Returns how the payload columns of a table change where a schema with `fields` is declared.

    Args:
        columns: The payload's columns as they are.
        fields: The schema's.
        keep_types: Whether a column keeps its type where neither type holds all values of the other.

    Raises:
        SchemaChangedError: A field's type neither fits its column's nor widens it, or its name differs in case only.
    """
    change = _structs(columns, fields, "", keep_types)
    evolved = children(cast("pa.StructType", change.data_type))
    return Evolution(pa.schema(evolved), tuple(change.added), tuple(change.widened))


def merged(fields: Sequence[Field], later: Sequence[Field]) -> list[Field]:
    """Returns the fields of two versions of a schema together, for values that may be written with either."""
    columns = evolve(pa.schema([column_of(field) for field in fields]), later, keep_types=False).columns
    required = {field.name for field in fields if not field.nullable} & {f.name for f in later if not f.nullable}
    return [pa.field(column.name, column.type, column.name not in required) for column in columns]


def _structs(columns: Iterable[Field], fields: Sequence[Field], path: str, keep_types: bool) -> _Change:
    """Returns how the columns in one struct, or those of the table, change by the fields declared for it."""
    kept = {field.name: field.type for field in columns}
    by_case = {name.casefold(): name for name in kept}
    added: list[str] = []
    widened: list[str] = []
    for field in fields:
        inside = f"{path}{field.name}"
        name = by_case.get(field.name.casefold())
        if name is None:
            kept[field.name] = loosened(field.type)
            by_case[field.name.casefold()] = field.name
            added.append(inside)
            continue
        if name != field.name:
            raise SchemaChangedError(f"column {path}{name} is now called {field.name}: names differ in case only")
        change = _changed(kept[name], loosened(field.type), inside, keep_types)
        kept[name] = change.data_type
        added += change.added
        widened += change.widened
    return _Change(pa.struct([pa.field(name, data_type) for name, data_type in kept.items()]), added, widened)


def _changed(old: pa.DataType, new: pa.DataType, path: str, keep_types: bool) -> _Change:
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _structs(children(old), children(new), f"{path}/", keep_types)
    if pa.types.is_list(old) and pa.types.is_list(new):
        change = _changed(old.value_type, new.value_type, f"{path}/[]", keep_types)
        return change._replace(data_type=list_of(change.data_type))
    if pa.types.is_map(old) and pa.types.is_map(new):
        keys = _changed(old.key_type, new.key_type, f"{path}/key", keep_types)
        values = _changed(old.item_type, new.item_type, f"{path}/value", keep_types)
        widened = keys.widened + values.widened
        return _Change(map_of(keys.data_type, values.data_type), keys.added + values.added, widened)
    if is_lossless(new, old) or (pa.types.is_integer(old) and pa.types.is_integer(new) and new == pa.int32()):
        return _Change(old, [], [])
    if is_lossless(old, new):
        return _Change(new, [], [path])
    if keep_types:
        return _Change(old, [], [])
    raise SchemaChangedError(
        f"column {path} is {type_text(old)} in the table and {type_text(new)} in the schema, which does not hold all "
        f'of its values; "changed_types": "dead-letter" in the schema file goes on with {type_text(old)}, and makes '
        "dead letters of the values that don't fit"
    )
