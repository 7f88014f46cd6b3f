"""The columns of a data file as its table has them now.

by ids      a format may know columns by ids (`Table.field_ids`): a file says the id of each, and the name and place
            that the table has for an id now count; what has another id now is another column, whatever its name
by names    where neither file nor table has ids
missing     a column that the file lacks is null
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import pyarrow as pa

from millrace_pipelines.arrow import Column, Columns, Field, nulls_of
from millrace_pipelines.warehouse.table.files import FIELD_ID, FieldIds

GONE = "\0"
"""Before the id of a field that the table has no longer; no field has such a name."""


class FileColumn(NamedTuple):
    """A column of a file: its name there, and its type with the names that the table has for the fields inside."""

    name: str
    type: pa.DataType


def file_columns(schema: pa.Schema, ids: FieldIds, names: Collection[str] | None = None) -> dict[str, FileColumn]:
    """Returns the columns of a file with this schema that the table has, by their names in the table.

    With `names` it returns only these.
    """
    known = {number: path[-1] for path, number in ids.items()}
    found = {_name_now(field, known): FileColumn(field.name, _type_now(field.type, known)) for field in schema}
    return {
        name: column for name, column in found.items() if not name.startswith(GONE) and (names is None or name in names)
    }


def is_as_now(schema: pa.Schema, ids: FieldIds) -> bool:
    """Returns whether a file has each of the table's columns that it has by the name that the table has for it."""
    columns = file_columns(schema, ids)
    misleading = {path[0] for path in ids} & {*schema.names} - columns.keys()
    return not misleading and all(
        name == column.name and column.type.equals(schema.field(column.name).type) for name, column in columns.items()
    )


def under_present_names(batch: pa.RecordBatch, columns: Mapping[str, FileColumn]) -> pa.RecordBatch:
    """Returns those columns of a file's rows, named as the table names them."""
    if batch.schema.names == list(columns) and batch.schema.types == [column.type for column in columns.values()]:
        return batch
    arrays = [batch.column(column.name) for column in columns.values()]
    viewed = [
        array if array.type.equals(column.type) else array.view(column.type)
        for array, column in zip(arrays, columns.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(viewed, names=list(columns)) if viewed else batch


def as_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows with exactly a schema's columns, null in columns that they lack."""
    if rows.schema.equals(schema):
        return rows
    present = set(rows.schema.names)
    columns: list[Column | Columns] = [
        rows.column(column.name).cast(column.type) if column.name in present else nulls_of(column.type, rows.num_rows)
        for column in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _name_now(field: Field, known: Mapping[int, str]) -> str:
    number = (field.metadata or {}).get(FIELD_ID.encode())
    if not known or number is None:
        return field.name
    return known.get(int(number), f"{GONE}{int(number)}")


def _type_now(kind: pa.DataType, known: Mapping[int, str]) -> pa.DataType:
    if pa.types.is_struct(kind):
        inner = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([one.with_name(_name_now(one, known)).with_type(_type_now(one.type, known)) for one in inner])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type_now(kind.value_type, known)))
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(_type_now(kind.key_type, known))
        value = kind.item_field.with_type(_type_now(kind.item_type, known))
        return pa.map_(key, value)  # type: ignore[call-overload,no-any-return]  # the stub knows no fields here
    return kind
