"""How a table's columns follow a schema that changed.

    the schema's field                       the table's column
    is new, at the top or in a struct        is added, null in earlier rows
    is wider (int → long, …)                 is widened, and the files are rewritten in the same commit
    is narrower                              stays; values of the field fit it
    is gone                                  stays, null in later rows
    is of another type                       stops the load, or stays: values that don't fit become dead letters

Widenings are those of Delta's type widening that lose nothing: integer → long, double, decimal(10+s,s);
long → decimal(20+s,s); float → double; decimal → decimal with no fewer digits before and after the point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from millrace_pipelines.arrow import Field
from millrace_pipelines.warehouse.errors import SchemaChangedError
from millrace_pipelines.warehouse.payload.conform import is_lossless
from millrace_pipelines.warehouse.payload.types import children, column_of, list_of, loosened, map_of, type_text


class Evolution(NamedTuple):
    """The columns that a table comes to, and the paths of those that are added and widened."""

    columns: pa.Schema
    added: tuple[str, ...]
    widened: tuple[str, ...]


class _Change(NamedTuple):
    data_type: pa.DataType
    added: list[str]
    widened: list[str]


class _Fields(NamedTuple):
    fields: list[Field]
    added: list[str]
    widened: list[str]


def evolve(columns: pa.Schema, fields: Sequence[Field], *, keep_types: bool) -> Evolution:
    """Returns the columns that a table with `columns` gets where a schema of `fields` is declared.

    Args:
        columns: The payload's columns as they are.
        fields: The schema's.
        keep_types: Whether a column keeps its type where the field's has nothing to do with it.

    Raises:
        SchemaChangedError: A field's type neither fits its column's nor widens it, or its name differs in case only.
    """
    change = _structs(columns, fields, "", keep_types)
    return Evolution(pa.schema(change.fields), tuple(change.added), tuple(change.widened))


def merged(fields: Sequence[Field], later: Sequence[Field]) -> list[Field]:
    """Returns the fields of two versions of a schema, either of which a value may have been written with."""
    columns = evolve(pa.schema([column_of(field) for field in fields]), later, keep_types=False).columns
    required = {field.name for field in fields if not field.nullable} & {f.name for f in later if not f.nullable}
    return [pa.field(column.name, column.type, column.name not in required) for column in columns]


def _structs(columns: Iterable[Field], fields: Sequence[Field], path: str, keep_types: bool) -> _Fields:
    """Returns the change of fields that stand side by side."""
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
    return _Fields([pa.field(name, data_type) for name, data_type in kept.items()], added, widened)


def _changed(old: pa.DataType, new: pa.DataType, path: str, keep_types: bool) -> _Change:
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        inside = _structs(children(old), children(new), f"{path}/", keep_types)
        return _Change(pa.struct(inside.fields), inside.added, inside.widened)
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
