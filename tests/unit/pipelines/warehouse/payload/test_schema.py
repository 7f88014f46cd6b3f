"""Declared payload schemas, good and bad."""

import json

import pyarrow as pa
import pytest

from millrace_pipelines.arrow import ENVELOPE_COLUMNS, ENVELOPE_FIELDS
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema, read_payload_schema
from millrace_pipelines.warehouse.payload.types import PRIMITIVES

NESTED = {
    "type": "struct",
    "fields": [
        {"name": "list", "type": {"type": "array", "elementType": "decimal(5,2)", "containsNull": False}},
        {"name": "map", "type": {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True}},
    ],
}
EVENT_TIME = {"column": "at", "granularity": "hour", "late_after": "7d", "late": "dead-letter"}
AT = {"name": "at", "type": "timestamp"}


def declared(*fields, **others):
    return json.dumps({"fields": list(fields), **others})


def test_the_envelope_comes_first_then_the_typed_columns():
    schema = parse_payload_schema(declared(*({"name": f"f_{name}", "type": name} for name in PRIMITIVES)))
    columns = pa.schema([*ENVELOPE_FIELDS, *schema.arrow])
    assert ENVELOPE_COLUMNS == ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    assert columns.names == [*ENVELOPE_COLUMNS, *(f"f_{name}" for name in PRIMITIVES)]
    assert columns.field("f_timestamp").type == pa.timestamp("us", tz="UTC")
    assert all(field.nullable for field in columns)


@pytest.mark.parametrize(
    "text",
    [
        declared({"name": "a", "type": "long", "nullable": False}),
        declared({"name": "a", "type": NESTED}, AT, event_time=EVENT_TIME, changed_types="dead-letter"),
        '{"format": "avro", "registry": "http://127.0.0.1:8081", "subject": "flights-value"}',
        '{"format": "raw", "event_time": {"column": "timestamp"}}',
    ],
)
def test_a_declaration_survives_its_json(text):
    schema = parse_payload_schema(text)
    assert parse_payload_schema(schema.to_json()) == schema


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "JSON object"),
        ("[]", "JSON object"),
        ("{}", "at least one field"),
        ('{"fields": []}', "at least one field"),
        (declared({"type": "long"}), "field 1 has no name"),
        (declared({"name": "a", "type": "money"}), "field a: type 'money' is not one of string"),
        (declared({"name": "a"}), "field a: type None"),
        (declared({"name": "a", "type": ["long"]}), "field a: type"),
        (declared({"name": "a", "type": "decimal(39,2)"}), "field a: type decimal"),
        (declared({"name": "a", "type": "long", "nullable": "no"}), "field a: nullable"),
        (declared({"name": "a", "type": "long", "unit": "s"}), "field a: unit is not known"),
        (declared({"name": "a b", "type": "long"}), "field 'a b'"),
        (declared({"name": "a", "type": "long"}, {"name": "A", "type": "long"}), "field A has the name of field a"),
        (declared({"name": "Offset", "type": "long"}), "field Offset has the name of the envelope's column offset"),
        (declared({"name": "event_date", "type": "date"}), "the partition column event_date"),
        (declared(AT, unknown=1), "unknown is not known"),
        (declared(AT, format="xml"), "format 'xml' is not one of raw, json, avro, protobuf"),
        (declared(AT, registry=7), "registry is 7"),
        (declared(AT, event_time={"column": "when"}), "event_time: when is no column"),
        (declared(AT, event_time={"column": "at", "granularity": "week"}), "event_time: 'week'"),
        (declared(AT, event_time={"column": "at", "late_after": "soon"}), "late_after: 'soon'"),
        (declared(AT, event_time={"column": "at", "earliest": "2020-01-01", "latest": "2019-01-01"}), "latest"),
        (declared(AT, event_time={"column": "at", "max_partitions": 0}), "max_partitions is 0"),
        ('{"format": "avro"}', "avro values have either a schema or a registry"),
        ('{"format": "raw"}', "raw values declares an event_time"),
    ],
)
def test_a_schema_that_can_t_be_used_says_which_field(text, message):
    with pytest.raises(SchemaError, match=message):
        parse_payload_schema(text)


def test_types_nested_too_deep_are_refused():
    data_type = "long"
    for _ in range(40):
        data_type = {"type": "array", "elementType": data_type}
    with pytest.raises(SchemaError, match="nested deeper"):
        parse_payload_schema(declared({"name": "a", "type": data_type}))


def test_a_file_that_can_t_be_read_is_named(tmp_path):
    with pytest.raises(SchemaError, match=r"absent.json"):
        read_payload_schema(str(tmp_path / "absent.json"))


def test_paths_begin_at_the_file(tmp_path):
    (tmp_path / "event.avsc").write_text('{"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}')
    (tmp_path / "schema.json").write_text('{"format": "avro", "schema": "event.avsc"}')
    (tmp_path / "registered.json").write_text('{"format": "avro", "registry": "schemas"}')
    schema = read_payload_schema(str(tmp_path / "schema.json"))
    assert json.loads(schema.text)["name"] == "E"
    assert read_payload_schema(str(tmp_path / "registered.json")).registry == str(tmp_path / "schemas")
