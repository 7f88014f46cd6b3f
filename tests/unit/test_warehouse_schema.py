"""Declared payload schemas, good and bad."""

import json

import pyarrow as pa
import pytest

from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.schema import (
    ENVELOPE_COLUMNS,
    PAYLOAD_TYPES,
    parse_payload_schema,
    read_payload_schema,
    table_schema,
)


def declared(*fields):
    return json.dumps({"fields": list(fields)})


def test_the_envelope_comes_first_then_the_typed_columns():
    schema = parse_payload_schema(declared(*({"name": f"f_{name}", "type": name} for name in PAYLOAD_TYPES)))
    columns = table_schema(schema)
    assert ENVELOPE_COLUMNS == ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    assert columns.names == [*ENVELOPE_COLUMNS, *(f"f_{name}" for name in PAYLOAD_TYPES)]
    assert columns.field("f_timestamp").type == pa.timestamp("us", tz="UTC")
    assert all(field.nullable for field in columns)


def test_a_declaration_survives_its_json():
    schema = parse_payload_schema(declared({"name": "a", "type": "long", "nullable": False}))
    assert parse_payload_schema(schema.to_json()) == schema


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "JSON object"),
        ("[]", "JSON object"),
        ('{"fields": []}', "at least one field"),
        (declared({"type": "long"}), "field 1 has no name"),
        (declared({"name": "a", "type": "money"}), "field a: type 'money' is not one of string"),
        (declared({"name": "a"}), "field a: type None"),
        (declared({"name": "a", "type": ["long"]}), "field a: type"),
        (declared({"name": "a", "type": "long", "nullable": "no"}), "field a: nullable"),
        (declared({"name": "a", "type": "long", "unit": "s"}), "field a: unit is not known"),
        (declared({"name": "a b", "type": "long"}), "field 'a b'"),
        (declared({"name": "a", "type": "long"}, {"name": "A", "type": "long"}), "field A has the name of field a"),
        (declared({"name": "Offset", "type": "long"}), "field Offset has the name of the envelope's column offset"),
    ],
)
def test_a_schema_that_can_t_be_used_says_which_field(text, message):
    with pytest.raises(SchemaError, match=message):
        parse_payload_schema(text)


def test_a_file_that_can_t_be_read_is_named(tmp_path):
    with pytest.raises(SchemaError, match=r"absent.json"):
        read_payload_schema(str(tmp_path / "absent.json"))
