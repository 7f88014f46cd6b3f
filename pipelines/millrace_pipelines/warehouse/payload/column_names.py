"""The names of columns: those of the payload's fields, unless the schema's declaration gives others.

    {"columns": {"timestamp": "sent_at", "address/zip code": "zip_code", "legs/[]/from": "origin"}}

A field is named by its path, as messages name it: the fields around it, `[]` for the elements of a list, `value` and
`key` for those of a map. Its column has another name and is elsewhere the same. Decoders know only fields; what they
return is renamed without a copy.

Every name, at the top and inside of types, has to be one that Delta Lake takes and that Spark and DuckDB, to which case
makes no difference, can tell from its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from millrace_pipelines.arrow import Field, combined
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.types import children, list_of, map_of

FORBIDDEN_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")


class ColumnNames:
    """The names that a declaration gives to the columns of some fields, by their paths."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._paths = {(path.rpartition("/")[0], name): path for path, name in self._given.items()}

    def columns(self, fields: Iterable[Field]) -> list[Field]:
        """Returns fields under the names of their columns."""
        return [self._column(field, field.name) for field in fields]

    def fields(self, columns: Iterable[Field]) -> list[Field]:
        """Returns columns under the names of the fields that they are made of."""
        return [self._field(column, "") for column in columns]

    def renamed(self, table: pa.Table) -> pa.Table:
        """Returns the columns of decoded fields under their own names."""
        if not self._given:
            return table
        columns = self.columns(table.schema)
        arrays = [combined(column).view(field.type) for column, field in zip(table.columns, columns, strict=True)]
        return pa.Table.from_arrays(arrays, schema=pa.schema(columns))

    def without_field(self, fields: Iterable[Field]) -> list[str]:
        """Returns those of the named paths that lead to none of these fields, nor to one inside of them."""
        there = {path for path, _ in _inside(fields, "")}
        return [path for path in self._given if path not in there]

    def _column(self, field: Field, path: str) -> Field:
        name = self._given.get(path, field.name)
        return pa.field(name, self._columns_inside(field.type, path), field.nullable)

    def _columns_inside(self, data_type: pa.DataType, path: str) -> pa.DataType:
        if pa.types.is_struct(data_type):
            return pa.struct([self._column(field, f"{path}/{field.name}") for field in children(data_type)])
        if pa.types.is_list(data_type):
            element = data_type.value_field
            return list_of(self._columns_inside(element.type, f"{path}/[]"), nullable=element.nullable)
        if pa.types.is_map(data_type):
            key, value = data_type.key_field, data_type.item_field
            keys, values = (self._columns_inside(one.type, f"{path}/{one.name}") for one in (key, value))
            return map_of(keys, values, nullable=value.nullable)
        return data_type

    def _field(self, column: Field, within: str) -> Field:
        path = self._paths.get((within, column.name)) or (f"{within}/{column.name}" if within else column.name)
        name = path[len(within) + 1 :] if within else path
        return pa.field(name, self._fields_inside(column.type, path), column.nullable)

    def _fields_inside(self, data_type: pa.DataType, path: str) -> pa.DataType:
        if pa.types.is_struct(data_type):
            return pa.struct([self._field(column, path) for column in children(data_type)])
        if pa.types.is_list(data_type):
            element = data_type.value_field
            return list_of(self._fields_inside(element.type, f"{path}/[]"), nullable=element.nullable)
        if pa.types.is_map(data_type):
            key, value = data_type.key_field, data_type.item_field
            keys, values = (self._fields_inside(one.type, f"{path}/{one.name}") for one in (key, value))
            return map_of(keys, values, nullable=value.nullable)
        return data_type


def named_columns(fields: Sequence[Field], names: ColumnNames, taken: Mapping[str, str]) -> list[Field]:
    """Returns fields under the names of their columns.

    Args:
        fields: A schema's fields.
        names: The names that are given to some of them.
        taken: Names that are not free at the top, in lower case, with what has them.

    Raises:
        SchemaError: A name can't be that of a column; the sentence has the field's path, and what to do.
    """
    columns = names.columns(fields)
    _check(fields, columns, taken, "")
    return columns


def _check(fields: Iterable[Field], columns: Iterable[Field], taken: Mapping[str, str], within: str) -> None:
    """Raises SchemaError for names of columns that stand side by side, and for those inside of them."""
    seen = dict(taken)
    for field, column in zip(fields, columns, strict=True):
        path, name = f"{within}{field.name}", column.name
        if not name:
            raise SchemaError(f"field {path!r} has no name; {_way_on(path, 'name')}")
        if FORBIDDEN_IN_NAMES.search(name):
            free = FORBIDDEN_IN_NAMES.sub("_", name)
            raise SchemaError(
                f"field {path!r}: a column's name has no space and none of ,;{{}}()=; {_way_on(path, free)}"
            )
        if (other := seen.get(name.casefold())) is not None:
            raise SchemaError(f"field {path} has the name of {other}; {_way_on(path, f'{name}_2')}")
        seen[name.casefold()] = f"field {path}"
        for (inside, one), (_, other_one) in zip(_structs(field.type, path), _structs(column.type, path), strict=True):
            _check(children(one), children(other_one), {}, f"{inside}/")


def _way_on(path: str, name: str) -> str:
    return f'"columns": {{"{path}": "{name}"}} in the schema file gives its column another name'


def _structs(data_type: pa.DataType, path: str) -> Iterator[tuple[str, pa.StructType]]:
    """Yields the structs in a type that no other struct in it holds, with their paths."""
    if pa.types.is_struct(data_type):
        yield path, data_type
    elif pa.types.is_list(data_type):
        yield from _structs(data_type.value_type, f"{path}/[]")
    elif pa.types.is_map(data_type):
        yield from _structs(data_type.key_type, f"{path}/key")
        yield from _structs(data_type.item_type, f"{path}/value")


def _inside(fields: Iterable[Field], within: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        path = f"{within}{field.name}"
        yield path, field
        for inside, struct in _structs(field.type, path):
            yield from _inside(children(struct), f"{inside}/")
