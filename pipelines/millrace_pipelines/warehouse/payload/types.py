"""The language in which columns are declared: Delta's names of types, as its schemas write them in JSON.

    "string" "integer" "long" "float" "double" "boolean" "timestamp" "date" "binary" "decimal(p,s)"
    {"type": "struct", "fields": [{"name": …, "type": …, "nullable": …}, …]}
    {"type": "array", "elementType": …, "containsNull": true}
    {"type": "map", "keyType": "string", "valueType": …, "valueContainsNull": true}

Source: the Delta transaction log protocol, "Schema Serialization Format".

Dates and timestamps are those that all readers of a table show: of the years 1 to 9999, in UTC. Parquet, Delta and
Spark hold many more. But Python has no others, so pyarrow, polars and Spark's own Python raise an error for them, and
DuckDB shows the farthest as infinity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millrace.records.arrow_columns import TIMESTAMP_TYPE
from millrace_pipelines.arrow import Column, Columns, Field
from millrace_pipelines.warehouse.errors import SchemaError

PRIMITIVES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP_TYPE,
    "date": pa.date32(),
    "binary": pa.binary(),
}
NAMES = {data_type: name for name, data_type in PRIMITIVES.items()}
DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")
MAX_DECIMAL_PRECISION = 38
FIELD_KEYS = {"name", "type", "nullable"}
MAX_DEPTH = 32
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01, 9999-12-31
DAY_US = 86_400_000_000
FIRST_MICROSECOND, LAST_MICROSECOND = FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1
BEYOND = "a time beyond the years 1 to 9999"


def parse_fields(declared: object, *, depth: int = 0) -> list[Field]:
    """Returns the fields of a declaration in JSON.

    Raises:
        SchemaError: A field can't be used; the message names it.
    """
    if not isinstance(declared, list) or not declared:
        raise SchemaError("a schema declares at least one field")
    if depth > MAX_DEPTH:
        raise SchemaError(f"types are nested deeper than {MAX_DEPTH}")
    return [_parse_field(number, entry, depth) for number, entry in enumerate(declared, start=1)]


def named_field(name: str, data_type: pa.DataType, nullable: bool) -> Field:
    """Returns a field; raises SchemaError for a name that is no valid text, such as half a surrogate pair in JSON."""
    try:
        return pa.field(name, data_type, nullable)
    except UnicodeEncodeError:
        raise SchemaError(f"field {name!r}: half of a surrogate pair is no character of a name") from None


def _parse_field(number: int, entry: object, depth: int) -> Field:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise SchemaError(f"field {number} has no name")
    name, nullable = entry["name"], entry.get("nullable", True)
    if not isinstance(nullable, bool):
        raise SchemaError(f"field {name}: nullable is {nullable!r}, not true or false")
    if unknown := entry.keys() - FIELD_KEYS - {"metadata"}:
        raise SchemaError(f"field {name}: {', '.join(sorted(unknown))} is not known")
    try:
        return named_field(name, parse_type(entry.get("type"), depth), nullable)
    except SchemaError as error:
        raise SchemaError(f"field {name}: {error}") from None


def parse_type(declared: object, depth: int = 0) -> pa.DataType:
    """Returns the type of a declaration: a name such as `long`, or a dictionary for a struct, array or map.

    Raises SchemaError for anything else.
    """
    if isinstance(declared, str):
        return _parse_primitive(declared)
    kind = declared.get("type") if isinstance(declared, dict) else None
    if not isinstance(declared, dict) or kind not in ("struct", "array", "map"):
        raise SchemaError(f"type {declared!r} is not one of {', '.join(PRIMITIVES)}, decimal, struct, array, map")
    if depth > MAX_DEPTH:
        raise SchemaError(f"types are nested deeper than {MAX_DEPTH}")
    if kind == "struct":
        return pa.struct(parse_fields(declared.get("fields"), depth=depth + 1))
    if kind == "array":
        element = parse_type(declared.get("elementType"), depth + 1)
        return list_of(element, nullable=_flag(declared, "containsNull"))
    key, value = parse_type(declared.get("keyType"), depth + 1), parse_type(declared.get("valueType"), depth + 1)
    return map_of(key, value, nullable=_flag(declared, "valueContainsNull"))


def _parse_primitive(declared: str) -> pa.DataType:
    if declared in PRIMITIVES:
        return PRIMITIVES[declared]
    if match := DECIMAL.fullmatch(declared):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= MAX_DECIMAL_PRECISION and scale <= precision:
            return pa.decimal128(precision, scale)
        raise SchemaError(f"type {declared}: a decimal has 1 to 38 digits, and no more than these after its point")
    raise SchemaError(f"type {declared!r} is not one of {', '.join(PRIMITIVES)}, decimal(p,s), struct, array, map")


def _flag(declared: Mapping[str, object], name: str) -> bool:
    flag = declared.get(name, True)
    if not isinstance(flag, bool):
        raise SchemaError(f"{name} is {flag!r}, not true or false")
    return flag


def list_of(element: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """Returns a list type whose element field has the name that Delta's readers expect."""
    return pa.list_(pa.field("element", element, nullable))


def map_of(key: pa.DataType, value: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """Returns a map type whose key and value fields have the names that Delta's readers expect."""
    keys, values = pa.field("key", key, nullable=False), pa.field("value", value, nullable)
    data_type: pa.DataType = pa.map_(keys, values)  # type: ignore[call-overload]  # the stub knows no fields here
    return data_type


def declare_fields(fields: Iterable[Field]) -> list[dict[str, object]]:
    """Returns the declaration of fields in JSON, which `parse_fields` reads back."""
    return [{"name": field.name, "type": declare_type(field.type), "nullable": field.nullable} for field in fields]


def declare_type(data_type: pa.DataType) -> str | dict[str, object]:
    """Returns the declaration of a type in JSON, which `parse_type` reads back."""
    if pa.types.is_struct(data_type):
        return {"type": "struct", "fields": declare_fields(children(data_type))}
    if pa.types.is_list(data_type):
        element = data_type.value_field
        return {"type": "array", "elementType": declare_type(element.type), "containsNull": element.nullable}
    if pa.types.is_map(data_type):
        key, value = data_type.key_field, data_type.item_field
        types = {"keyType": declare_type(key.type), "valueType": declare_type(value.type)}
        return {"type": "map", **types, "valueContainsNull": value.nullable}
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    return NAMES.get(data_type, str(data_type))


def type_text(data_type: pa.DataType) -> str:
    """Returns a type in few words, for messages."""
    if pa.types.is_struct(data_type):
        return f"struct<{', '.join(f'{field.name}: {type_text(field.type)}' for field in children(data_type))}>"
    if pa.types.is_list(data_type):
        return f"array<{type_text(data_type.value_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{type_text(data_type.key_type)}, {type_text(data_type.item_type)}>"
    return str(declare_type(data_type))


def children(data_type: pa.StructType) -> Sequence[Field]:
    """Returns the fields of a struct."""
    return [data_type.field(index) for index in range(data_type.num_fields)]


def loosened(data_type: pa.DataType) -> pa.DataType:
    """Returns a type with all fields, elements and values inside nullable, as the table's column has it."""
    if pa.types.is_struct(data_type):
        return pa.struct([column_of(field) for field in children(data_type)])
    if pa.types.is_list(data_type):
        return list_of(loosened(data_type.value_type))
    if pa.types.is_map(data_type):
        return map_of(loosened(data_type.key_type), loosened(data_type.item_type))
    return data_type


def column_of(field: Field) -> Field:
    """Returns the column for a declared field: nullable, as a tombstone has null in each column."""
    return pa.field(field.name, loosened(field.type), nullable=True)


def is_in_calendar(column: Column | Columns) -> bool:
    """Returns whether all dates, or all timestamps, of a column are of the years 1 to 9999."""
    is_date = pa.types.is_date(column.type)
    first, last = (FIRST_DAY, LAST_DAY) if is_date else (FIRST_MICROSECOND, LAST_MICROSECOND)
    numbers = column.cast(pa.int32() if is_date else pa.int64())
    low, high = (pc.min_max(numbers)[name].as_py() for name in ("min", "max"))
    return low is None or first <= low <= high <= last
