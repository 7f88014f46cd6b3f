"""What a catalog of another engine has of a Delta table: where it is, and its columns in the words of Hive.

The table itself is the truth, and is read at its location; an entry says only that it is there. So an entry follows
from the table, and one that could not be made is made by whoever comes next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import pyarrow as pa

from millrace.errors import WarehouseError
from millrace_pipelines.arrow import Field
from millrace_pipelines.warehouse.errors import RegistrationError

PROPERTIES = {"spark.sql.sources.provider": "delta", "table_type": "DELTA", "classification": "delta"}
"""By which Spark, Trino, Athena and Glue's own crawlers know a Delta table."""
FORMATS = ("SequenceFileInputFormat", "HiveSequenceFileOutputFormat")
SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
PRIMITIVES = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.large_string(): "string",
    pa.binary(): "binary", pa.large_binary(): "binary", pa.date32(): "date",
}  # fmt: skip


class Entry(NamedTuple):
    """A table's location as an address, and its columns with their types as Hive writes them."""

    location: str
    columns: tuple[tuple[str, str], ...]


class Catalog(Protocol):
    """A catalog of another engine."""

    def find(self) -> Entry | None:
        """Returns the entry of the name; None where there is none."""
        ...

    def put(self, entry: Entry, before: Entry | None) -> None:
        """Makes the entry, or sets its columns where there was one before."""
        ...


def entry_of(location: str, schema: pa.Schema) -> Entry:
    """Returns the entry of a table at a location."""
    address = location if "://" in location else f"file://{location}"
    return Entry(address, tuple((field.name, hive_type(field.type)) for field in schema))


def hive_type(kind: pa.DataType) -> str:
    """Returns a type as Hive writes it."""
    if isinstance(kind, pa.Decimal128Type):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if isinstance(kind, pa.MapType):
        return f"map<{hive_type(kind.key_type)},{hive_type(kind.item_type)}>"
    if isinstance(kind, (pa.ListType, pa.LargeListType)):
        return f"array<{hive_type(kind.value_type)}>"
    if isinstance(kind, pa.StructType):
        fields: list[Field] = [kind.field(index) for index in range(kind.num_fields)]
        return f"struct<{','.join(f'{field.name}:{hive_type(field.type)}' for field in fields)}>"
    return PRIMITIVES.get(kind, "string")


def same_place(one: str, other: str) -> bool:
    """Returns whether two locations are one, whichever way they are written."""
    return _plain(one) == _plain(other)


def _plain(location: str) -> str:
    scheme, colon, rest = location.partition(":")
    name = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
    return f"{name}{colon}{rest}".removeprefix("file:").replace("///", "/").rstrip("/")


@contextmanager
def errors_of(target: str) -> Iterator[None]:
    """Raises whatever goes wrong with a catalog as RegistrationError, in one line."""
    try:
        yield
    except WarehouseError:
        raise
    except Exception as error:
        line = " ".join(str(error).split()) or type(error).__name__
        raise RegistrationError(f"{target}: the catalog can't be asked: {line}") from error
