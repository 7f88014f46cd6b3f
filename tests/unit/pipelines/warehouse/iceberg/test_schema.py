import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimeType

from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.errors import SchemaError, TableRefusedError
from millrace_pipelines.warehouse.iceberg.schema import (
    arrow_schema,
    evolved,
    iceberg_schema,
    ids_of,
    partition_spec,
    widens,
)
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.payload.types import PRIMITIVES, list_of, map_of
from millrace_pipelines.warehouse.table.files import FIELD_ID, identified

STRUCT = pa.struct([pa.field("city", pa.string()), pa.field("at", pa.timestamp("us", "UTC"))])
COLUMNS = pa.schema(
    [
        *[pa.field(name, kind) for name, kind in PRIMITIVES.items()],
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("place", STRUCT),
        pa.field("tags", list_of(pa.string(), nullable=False)),
        pa.field("places", list_of(STRUCT)),
        pa.field("counts", map_of(pa.string(), list_of(pa.int32()))),
    ]
)


@pytest.mark.parametrize("columns", [COLUMNS, ENVELOPE_SCHEMA, DEAD_LETTER_SCHEMA])
def test_columns_come_back_as_they_were(columns):
    schema = iceberg_schema(columns)
    assert arrow_schema(schema).equals(columns)
    ids = ids_of(schema)
    assert len(set(ids.values())) == len(ids) == schema.highest_field_id


def test_files_say_the_id_of_every_field():
    ids = ids_of(iceberg_schema(COLUMNS))
    schema = identified(COLUMNS, ids)

    def said(field):
        kind, found = field.type, [int(field.metadata[FIELD_ID.encode()])]
        inner = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else [
            kind.field(index) for index in range(kind.num_fields)
        ]  # fmt: skip
        return found + [one for child in inner for one in said(child)]

    assert sorted(one for field in schema for one in said(field)) == sorted(ids.values())
    assert schema.equals(COLUMNS)


def test_what_follows_keeps_the_ids_of_what_was_there():
    before = iceberg_schema(COLUMNS)
    wider = pa.struct([*STRUCT, pa.field("zip", pa.string())])
    changed = [
        pa.field("integer", pa.int64()), pa.field("price", pa.decimal128(14, 2)), pa.field("place", wider),
        pa.field("places", list_of(wider)), pa.field("fresh", list_of(STRUCT)),
    ]  # fmt: skip
    assert widens(before, changed)
    after = evolved(changed, before, last_id=before.highest_field_id + 7)
    ids, ids_before = ids_of(after), ids_of(before)
    assert {path: ids[path] for path in ids_before} == ids_before
    fresh = [one for path, one in ids.items() if path not in ids_before]
    assert min(fresh) == before.highest_field_id + 8
    assert len(set(ids.values())) == len(ids)
    columns = arrow_schema(after)
    assert [columns.field(field.name).type for field in changed] == [field.type for field in changed]
    assert columns.names == [*COLUMNS.names, "fresh"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int32(), pa.float64(), False),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(5, 2), pa.decimal128(7, 2), True),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), False),
        (pa.int32(), pa.decimal128(12, 2), False),
        (list_of(pa.int32()), list_of(pa.int64()), True),
        (map_of(pa.string(), pa.int32()), map_of(pa.string(), pa.float64()), False),
        (pa.struct([pa.field("a", pa.int32())]), pa.struct([pa.field("a", pa.float64())]), False),
    ],
)
def test_only_some_types_are_widened_by_metadata(before, after, expected):
    schema = iceberg_schema(pa.schema([pa.field("a", before)]))
    assert widens(schema, [pa.field("a", after), pa.field("other", pa.int8())]) is expected


def test_partitions_are_days_or_hours_of_a_column():
    columns = pa.schema([pa.field("at", pa.timestamp("us", "UTC")), pa.field("event_hour", pa.timestamp("us", "UTC"))])
    schema = iceberg_schema(columns)
    assert str(partition_spec(schema, columns, {"event_hour": "at"}).fields[0]) == "1000: event_hour: hour(1)"
    days = pa.schema([columns.field("at"), pa.field("event_date", pa.date32())])
    assert str(partition_spec(schema, days, {"event_date": "at"}).fields[0]) == "1000: event_date: day(1)"


def test_types_of_one_side_only_are_named():
    with pytest.raises(SchemaError, match="uint64"):
        iceberg_schema(pa.schema([pa.field("a", pa.uint64())]))
    with pytest.raises(TableRefusedError, match="column noon has Iceberg's type time"):
        arrow_schema(Schema(NestedField(1, "noon", TimeType())))
