"""Framed values, and the registries that know their schemas."""

import base64
import io
import json

import fastavro
import pyarrow as pa
import pytest

from millrace.records.varint import encode_varint
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError
from millrace_pipelines.warehouse.payload import registry as registry_module
from millrace_pipelines.warehouse.payload.conform import evolve
from millrace_pipelines.warehouse.payload.outcome import Reason
from millrace_pipelines.warehouse.payload.payload import Payload, source_fields, split_message_indexes, versions_of
from millrace_pipelines.warehouse.payload.protobuf import compile_proto, protobuf_decoder
from millrace_pipelines.warehouse.payload.registry import FileRegistry, HttpRegistry, UnknownSchemaError
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_support.schema_registry import SchemaRegistryServer

V1 = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}
V2 = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
V3 = {"type": "record", "name": "E", "fields": [{"name": "c", "type": "string"}]}
PROTO = """syntax = "proto3"; import "inner.proto";
message Other { string name = 1; } message Event { int64 id = 1; Inner inner = 2; map<string, int32> map = 3;
  message Deep { int32 x = 1; } Deep deep = 4; }"""
INNER = 'syntax = "proto3"; message Inner { int32 x = 1; }'
JSON_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}},
        "inner": {"$ref": "#/definitions/inner"},
        "maybe": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "definitions": {"inner": {"type": "object", "properties": {"x": {"type": "boolean"}}}},
}


@pytest.fixture
def server():
    with SchemaRegistryServer() as running:
        yield running


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_WAIT_S", 0.01)


def payload(address, kind="avro", **declared):
    schema = parse_payload_schema(json.dumps({"format": kind, "registry": address, **declared}))
    versions = versions_of(schema, "events")
    columns = evolve(pa.schema([]), source_fields(schema, versions), keep_types=False).columns
    return Payload(schema, columns, {version.schema_id: version for version in versions})


def framed(schema_id, data):
    return b"\0" + schema_id.to_bytes(4, "big") + data


def avro(schema_id, schema, event):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, event)
    return framed(schema_id, out.getvalue())


def decode(one, *values):
    return one.decode(pa.array(values, pa.binary()))


def test_each_value_is_read_by_its_own_schema(server):
    for version in (V1, V2):
        server.register("events-value", json.dumps(version))
    found = payload(server.url)
    assert found.columns.names == ["a", "b"]
    newer = server.register("events-value", json.dumps(V3))
    other = server.register("others-value", PROTO, "PROTOBUF")
    decoded = decode(
        found,
        avro(2, V2, {"a": 2**40, "b": "x"}),
        avro(1, V1, {"a": 3}),
        None,
        b"\1not framed",
        b"\0\0",
        avro(newer, V3, {"c": "x"}),
        framed(99, b"\2"),
        framed(other, b"\2"),
        avro(1, V1, {"a": 4}) + b"\0",
        avro(2, V2, {"a": 5, "b": "y"}),
    )
    assert decoded.columns.to_pylist() == [
        {"a": 2**40, "b": "x"},
        {"a": 3, "b": None},
        {"a": None, "b": None},
        {"a": 5, "b": "y"},
    ]
    assert [(refusal.row, refusal.reason, refusal.schema_id) for refusal in decoded.refusals] == [
        (3, Reason.FRAMING, None),
        (4, Reason.FRAMING, None),
        (5, Reason.NEWER_SCHEMA, newer),
        (6, Reason.UNKNOWN_SCHEMA, 99),
        (7, Reason.UNUSABLE_SCHEMA, other),
        (8, Reason.MALFORMED, 1),
    ]


def test_protobuf_messages_are_found_by_their_indexes(server):
    server.register("inner", INNER, "PROTOBUF")
    schema_id = server.register("events-value", PROTO, "PROTOBUF", [("inner.proto", "inner", 1)])
    descriptors = compile_proto("main.proto", {"main.proto": PROTO, "inner.proto": INNER})
    event = protobuf_decoder(descriptors, "Event")._class(id=7, map={"a": 1})
    event.inner.x = 3
    fields = [
        {"name": "id", "type": "long"},
        {"name": "inner", "type": {"type": "struct", "fields": [{"name": "x", "type": "integer"}]}},
        {"name": "name", "type": "string"},
    ]
    found = payload(server.url, "protobuf", fields=fields)
    decoded = decode(
        found,
        framed(schema_id, encode_varint(1) + encode_varint(1) + event.SerializeToString()),
        framed(schema_id, b"\0" + b"\x0a\x01x"),
        framed(schema_id, encode_varint(1) + encode_varint(9)),
        framed(schema_id, b"\xff"),
        framed(schema_id, encode_varint(2) + encode_varint(1) + encode_varint(0) + b"\x08\x05"),
    )
    assert [row["id"] for row in decoded.columns.to_pylist()] == [7, None, None]
    assert decoded.columns.column("inner").to_pylist() == [{"x": 3}, None, None]
    assert decoded.columns.column("name").to_pylist() == [None, "x", None]
    assert [refusal.reason for refusal in decoded.refusals] == [Reason.UNUSABLE_SCHEMA, Reason.FRAMING]


def test_message_indexes():
    assert split_message_indexes(b"\0rest") == ((0,), b"rest")
    assert split_message_indexes(encode_varint(2) + encode_varint(1) + encode_varint(0) + b"x") == ((1, 0), b"x")
    assert split_message_indexes(b"") is None
    assert split_message_indexes(encode_varint(1000)) is None


def test_json_schema_gives_columns(server):
    schema_id = server.register("events-value", json.dumps(JSON_SCHEMA), "JSON")
    found = payload(server.url, "json")
    assert found.columns.names == ["id", "at", "tags", "inner", "maybe", "labels"]
    event = {"id": 1, "tags": ["a", None], "inner": {"x": True}, "labels": {"k": "v"}}
    decoded = decode(found, framed(schema_id, json.dumps(event).encode()), framed(schema_id, b'{"id": "x"}'))
    assert decoded.columns.to_pylist() == [event | {"at": None, "maybe": None, "labels": [("k", "v")]}]
    assert [(refusal.reason, refusal.schema_id) for refusal in decoded.refusals] == [(Reason.TYPE, schema_id)]


def test_a_json_schema_without_columns_names_the_property(server):
    server.register("events-value", '{"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}', "JSON")
    with pytest.raises(SchemaError, match="field a: JSON Schema type"):
        payload(server.url, "json")


def test_declared_fields_leave_out_what_a_json_schema_has_no_column_for(server):
    properties = {"a": {"type": "string"}, "b": {"type": ["string", "integer"]}}
    schema_id = server.register("events-value", json.dumps({"type": "object", "properties": properties}), "JSON")
    found = payload(server.url, "json", fields=[{"name": "a", "type": "string"}])
    decoded = decode(found, framed(schema_id, b'{"a": "x", "b": 3}'))
    assert (decoded.columns.to_pylist(), decoded.refusals) == ([{"a": "x"}], [])


def test_an_unwell_registry_is_asked_again(server):
    server.register("events-value", json.dumps(V1))
    registry = HttpRegistry(server.url)
    server.failures = 3
    assert registry.schema(1).text == json.dumps(V1)
    asked = len(server.requests)
    assert registry.schema(1).schema_id == 1
    assert len(server.requests) == asked == 4
    server.failures = 100
    with pytest.raises(RegistryError, match="status 503"):
        registry.versions("events-value")


def test_the_cache_is_bounded(server, monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_CACHED", 2)
    registry = HttpRegistry(server.url)
    for _ in range(3):
        registry.schema(server.register("events-value", json.dumps(V1)))
    registry.schema(3)
    registry.schema(1)
    assert server.requests == [f"/schemas/ids/{schema_id}" for schema_id in (1, 2, 3, 1)]


def test_what_is_not_there_and_who_is_not_there(server):
    with pytest.raises(UnknownSchemaError, match="not registered"):
        HttpRegistry(server.url).versions("nothing")
    with SchemaRegistryServer() as gone:
        address = gone.url
    with pytest.raises(RegistryError, match="Connect"):
        HttpRegistry(address).schema(1)


def test_credentials_come_from_the_environment(server, monkeypatch):
    server.register("events-value", json.dumps(V1))
    server.credentials = "Basic " + base64.b64encode(b"me:secret").decode()
    with pytest.raises(SchemaError, match="status 401"):
        HttpRegistry(server.url).schema(1)
    monkeypatch.setenv("SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", "me:secret")
    assert HttpRegistry(server.url).schema(1).schema_id == 1
    with pytest.raises(SchemaError, match="user and password belong into"):
        HttpRegistry("http://me:secret@127.0.0.1:1")
    with pytest.raises(SchemaError, match="not the address"):
        HttpRegistry("ftp://somewhere")


def test_a_directory_is_a_registry(tmp_path):
    (tmp_path / "3.avsc").write_text(json.dumps(V1))
    (tmp_path / "5.avsc").write_text(json.dumps(V2))
    (tmp_path / "6.proto").write_text(PROTO)
    (tmp_path / "7.proto").write_text(INNER)
    lists = {
        "subjects": {"events-value": [3, 5], "inner": [7]},
        "references": {"6": [{"name": "inner.proto", "subject": "inner", "version": 1}]},
    }
    (tmp_path / "subjects.json").write_text(json.dumps(lists))
    registry = FileRegistry(str(tmp_path))
    assert [schema.schema_id for schema in registry.versions("events-value")] == [3, 5]
    assert registry.schema(6).references == (("inner.proto", INNER),)
    found = payload(str(tmp_path))
    assert decode(found, avro(3, V1, {"a": 1})).columns.to_pylist() == [{"a": 1, "b": None}]
    with pytest.raises(UnknownSchemaError, match="no subject others"):
        registry.versions("others")
    with pytest.raises(UnknownSchemaError, match="no schema 4"):
        registry.schema(4)
