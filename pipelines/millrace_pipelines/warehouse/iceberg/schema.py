"""Columns in Arrow and in Iceberg: types, the ids of fields, and a schema that follows new columns.

    Arrow                                 Iceberg
    string, binary, int32, int64, …       string, binary, int, long, …
    timestamp[us, tz=UTC]                 timestamptz
    struct, list, map                     struct, list, map; each of their fields has an id, too

A field keeps its id for ever, whatever its name, its place and its type become. Iceberg widens int to long, float to
double and the precision of decimals in its metadata alone; for other widenings files are rewritten under new ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from millrace.records.arrow_columns import TIMESTAMP_TYPE
from millrace_pipelines.arrow import Field
from millrace_pipelines.warehouse.errors import SchemaError, TableRefusedError
from millrace_pipelines.warehouse.table.files import ELEMENT, KEY, VALUE

PRIMITIVES: Mapping[pa.DataType, IcebergType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    TIMESTAMP_TYPE: TimestamptzType(),
    pa.timestamp("us"): TimestampType(),
}
ARROW = {kind: arrow for arrow, kind in PRIMITIVES.items()}


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Returns the schema of a new table; raises SchemaError for a type that Iceberg lacks."""
    return Schema(*_fields(columns, (), count(1)))


def evolved(columns: Iterable[Field], schema: Schema, last_id: int) -> Schema:
    """Returns a schema with these columns added, or widened where it has them; others stay as they are.

    Args:
        columns: Top-level columns, each with all of its inner fields.
        schema: The table's schema.
        last_id: The highest id that the table has ever given.
    """
    ids, by_name = count(last_id + 1), {column.name: column for column in columns}
    kept = [_field(by_name.pop(field.name), field, ids) if field.name in by_name else field for field in schema.fields]
    return Schema(*kept, *_fields(by_name.values(), (), ids), identifier_field_ids=schema.identifier_field_ids)


def replaced(columns: pa.Schema, schema: Schema, last_id: int) -> Schema:
    """Returns a schema of exactly these columns, for a table all of whose files are replaced.

    A column keeps its id where its type stays, or can be promoted to the new one; else it is a new one with its name,
    and so is a field inside of a struct.
    """
    fields = _fields(columns, _promoted(schema.fields, columns), count(last_id + 1))
    stay = {field.field_id for field in fields}
    return Schema(*fields, identifier_field_ids=[one for one in schema.identifier_field_ids if one in stay])


def _promoted(fields: Iterable[NestedField], columns: Iterable[Field]) -> Iterator[NestedField]:
    """Yields the fields, and those inside of structs, that can be promoted to the columns of their names."""
    kinds = {column.name: column.type for column in columns}
    for field in fields:
        kind = kinds.get(field.name)
        if isinstance(field.field_type, StructType) and kind is not None and pa.types.is_struct(kind):
            inner = StructType(*_promoted(field.field_type.fields, _children(kind)))
            yield field.model_copy(update={"field_type": inner})
        elif kind is not None and _is_promoted(field.field_type, kind):
            yield field


def widens(schema: Schema, columns: Iterable[Field]) -> bool:
    """Returns whether Iceberg can bring the columns that the schema has to these types in its metadata alone."""
    fields = {field.name: field for field in schema.fields}
    return all(_is_promoted(fields[one.name].field_type, one.type) for one in columns if one.name in fields)


def _is_promoted(before: IcebergType, kind: pa.DataType) -> bool:
    if isinstance(before, StructType):
        fields = {field.name: field.field_type for field in before.fields}
        return all(_is_promoted(fields[one.name], one.type) for one in _children(kind) if one.name in fields)
    if isinstance(before, ListType):
        return pa.types.is_list(kind) and _is_promoted(before.element_type, kind.value_type)
    if isinstance(before, MapType):
        return pa.types.is_map(kind) and _is_promoted(before.value_type, kind.item_type)
    after = _primitive(kind)
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    promoted = (IntegerType(), LongType()), (FloatType(), DoubleType())
    return before == after or (before, after) in promoted


def _fields(columns: Iterable[Field], before: Iterable[NestedField], ids: Iterator[int]) -> list[NestedField]:
    """Returns fields with ids: those of before where the name was there, new ones for all others."""
    known = {field.name: field for field in before}
    named = [(column, known.get(column.name)) for column in columns]
    numbers = [next(ids) if field is None else field.field_id for _, field in named]
    return [_field(column, field, ids, number) for (column, field), number in zip(named, numbers, strict=True)]


def _field(column: Field, before: NestedField | None, ids: Iterator[int], number: int | None = None) -> NestedField:
    field_id = before.field_id if before is not None else next(ids) if number is None else number
    kind = _type(column.type, None if before is None else before.field_type, ids)
    required = not column.nullable and (before is None or before.required)
    return NestedField(field_id=field_id, name=column.name, field_type=kind, required=required)


def _type(kind: pa.DataType, before: IcebergType | None, ids: Iterator[int]) -> IcebergType:
    if pa.types.is_struct(kind):
        return StructType(*_fields(_children(kind), before.fields if isinstance(before, StructType) else (), ids))
    if pa.types.is_list(kind):
        was = before if isinstance(before, ListType) else None
        element_id = next(ids) if was is None else was.element_id
        element = _type(kind.value_type, None if was is None else was.element_type, ids)
        return ListType(element_id, element, element_required=not kind.value_field.nullable)
    if pa.types.is_map(kind):
        had = before if isinstance(before, MapType) else None
        key_id, value_id = (next(ids), next(ids)) if had is None else (had.key_id, had.value_id)
        key = _type(kind.key_type, None if had is None else had.key_type, ids)
        value = _type(kind.item_type, None if had is None else had.value_type, ids)
        return MapType(key_id, key, value_id, value, value_required=not kind.item_field.nullable)
    return _primitive(kind)


def _primitive(kind: pa.DataType) -> IcebergType:
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if kind not in PRIMITIVES:
        raise SchemaError(f"Iceberg has no type {kind}")
    return PRIMITIVES[kind]


def _children(kind: pa.DataType) -> list[Field]:
    return [kind.field(index) for index in range(kind.num_fields)]


def arrow_schema(schema: Schema) -> pa.Schema:
    """Returns the columns of a table.

    Raises:
        TableRefusedError: One has a type that Millrace does not read, or, since format version 3, a default value.
    """
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: NestedField) -> Field:
    if field.initial_default is not None or field.write_default is not None:
        raise TableRefusedError(
            f"column {field.name} has a default value, which Millrace neither reads nor writes. Way on: load into "
            "another table. Nothing was changed"
        )
    return pa.field(field.name, _arrow(field.field_type, field.name), not field.required)


def _arrow(kind: IcebergType, name: str) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(field) for field in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(pa.field(ELEMENT, _arrow(kind.element_type, name), not kind.element_required))
    if isinstance(kind, MapType):
        key = pa.field(KEY, _arrow(kind.key_type, name), nullable=False)
        value = pa.field(VALUE, _arrow(kind.value_type, name), not kind.value_required)
        data_type: pa.DataType = pa.map_(key, value)  # type: ignore[call-overload]  # the stub knows no fields here
        return data_type
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if kind not in ARROW:
        raise TableRefusedError(f"column {name} has Iceberg's type {kind}, which Millrace does not read")
    return ARROW[kind]


def ids_of(schema: Schema) -> dict[tuple[str, ...], int]:
    """Returns the ids of all fields, by path (`table.files.FieldIds`)."""
    return dict(_ids(schema.fields, ()))


def _ids(fields: Iterable[NestedField], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    for field in fields:
        yield (*path, field.name), field.field_id
        yield from _inner_ids(field.field_type, (*path, field.name))


def _inner_ids(kind: IcebergType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(kind, StructType):
        yield from _ids(kind.fields, path)
    elif isinstance(kind, ListType):
        yield (*path, ELEMENT), kind.element_id
        yield from _inner_ids(kind.element_type, (*path, ELEMENT))
    elif isinstance(kind, MapType):
        yield from (((*path, KEY), kind.key_id), ((*path, VALUE), kind.value_id))
        yield from _inner_ids(kind.key_type, (*path, KEY))
        yield from _inner_ids(kind.value_type, (*path, VALUE))


def partition_spec(schema: Schema, columns: pa.Schema, partition_by: Mapping[str, str]) -> PartitionSpec:
    """Returns the partitions of a new table: the day or hour of a column, named as Delta's column of that value is.

    Args:
        schema: The table's schema.
        columns: The columns that are asked for, those of partitions, too: dates for days, timestamps for hours.
        partition_by: The columns of partitions, each with the one that it is derived from.
    """
    fields = [
        PartitionField(
            source_id=schema.find_field(source).field_id,
            field_id=PARTITION_FIELD_ID_START + number,
            transform=DayTransform() if pa.types.is_date(columns.field(name).type) else HourTransform(),
            name=name,
        )
        for number, (name, source) in enumerate(partition_by.items())
    ]
    return PartitionSpec(*fields)
