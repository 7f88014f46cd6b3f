"""Names of columns: checked at every depth of every format, and changed where the declaration says so."""

import base64
import io
import json

import fastavro
import pyarrow as pa
import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.outcome import Reason
from millrace_pipelines.warehouse.payload.payload import Payload, source_fields
from millrace_pipelines.warehouse.payload.protobuf import compile_proto, protobuf_decoder
from millrace_pipelines.warehouse.payload.schema import declared_schema, parse_payload_schema
from millrace_pipelines.warehouse.tables.open import wanted_columns
from millrace_support.small_tables import open_tables

PROTO = 'syntax = "proto3"; message Event {{ {fields} }} '
PLACES = {"top": "", "struct": "in/", "array": "in/[]/", "map": "in/value/"}
ENVELOPE = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def json_declaration(names, place):
    fields = [{"name": name, "type": "long"} for name in names]
    struct = {"type": "struct", "fields": fields}
    types = {
        "struct": struct,
        "array": {"type": "array", "elementType": struct},
        "map": {"type": "map", "keyType": "string", "valueType": struct},
    }
    return {"fields": fields if place == "top" else [{"name": "in", "type": types[place]}]}


def json_schema(names, place):
    struct = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    types = {
        "struct": struct,
        "array": {"type": "array", "items": struct},
        "map": {"type": "object", "additionalProperties": struct},
    }
    return struct if place == "top" else {"type": "object", "properties": {"in": types[place]}}


def avro_schema(names, place):
    struct = {"type": "record", "name": "S", "fields": [{"name": name, "type": "long"} for name in names]}
    types = {
        "struct": struct,
        "array": {"type": "array", "items": struct},
        "map": {"type": "map", "values": struct},
    }
    return struct if place == "top" else {
        "type": "record", "name": "E", "fields": [{"name": "in", "type": types[place]}],
    }  # fmt: skip


def proto_schema(names, place):
    fields = " ".join(f"int64 {name} = {number};" for number, name in enumerate(names, start=1))
    if place == "top":
        return PROTO.format(fields=fields)
    types = {"struct": "S", "array": "repeated S", "map": "map<string, S>"}
    return PROTO.format(fields=f"{types[place]} in = 1;") + f"message S {{ {fields} }}"


def declaration(tmp_path, kind, names, place="top", **more):
    """Returns the schema of a format whose fields at a place have these names."""
    if kind == "json":
        return parse_payload_schema(json.dumps(json_declaration(names, place) | more))
    text = {"json schema": json_schema, "avro": avro_schema, "protobuf": proto_schema}[kind](names, place)
    text = text if isinstance(text, str) else json.dumps(text)
    if kind == "json schema":
        (tmp_path / "7.json").write_text(text)
        (tmp_path / "subjects.json").write_text(json.dumps({"subjects": {"t-value": [7]}}))
        return parse_payload_schema(json.dumps({"registry": "."} | more), directory=str(tmp_path))
    if kind == "protobuf":
        text = base64.b64encode(compile_proto("e.proto", {"e.proto": text})).decode()
    return parse_payload_schema(json.dumps({"format": kind, "schema_text": text} | more))


def columns(schema):
    return wanted_columns(schema, None, "t").evolution.columns


FORMATS = ("json", "json schema", "avro", "protobuf")
TEXTS = ("json", "json schema")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", FORMATS)
def test_names_that_differ_in_case_only_are_refused_at_every_depth(tmp_path, kind, place):
    path = PLACES[place]
    with pytest.raises(SchemaError) as refused:
        columns(declaration(tmp_path, kind, ["id", "ID"], place))
    assert str(refused.value) == (
        f"field {path}ID has the name of field {path}id; "
        f'"columns": {{"{path}ID": "ID_2"}} in the schema file gives its column another name'
    )
    found = columns(declaration(tmp_path, kind, ["id", "ID"], place, columns={f"{path}ID": "other"}))
    assert "other" in str(found)
    assert "ID" not in str(found)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("name", ["zip code", "a,b", "a;b", "{a", "a}", "(a", "a)", "a\nb", "a\tb", "a=b"])
def test_characters_that_delta_refuses_are_refused_at_every_depth(tmp_path, kind, place, name):
    path = f"{PLACES[place]}{name}"
    with pytest.raises(SchemaError, match="a column's name has no space and none of") as refused:
        columns(declaration(tmp_path, kind, ["id", name], place))
    assert repr(path) in str(refused.value)
    assert "in the schema file gives its column another name" in str(refused.value)
    table = open_tables(
        str(tmp_path / "t"), "t", "id", declaration(tmp_path, kind, ["id", name], place, columns={path: "free"}),
        OsFileSystem(),
    ).rows  # fmt: skip
    assert "free" in str(table.schema)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(("name", "sentence"), [("", "has no name"), ("\ud800", "half of a surrogate pair")])
def test_names_that_are_none_are_refused_at_every_depth(tmp_path, kind, place, name, sentence):
    with pytest.raises(SchemaError, match=sentence):
        columns(declaration(tmp_path, kind, ["id", name], place))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ENVELOPE)
def test_a_field_called_as_a_column_of_the_envelope_can_have_another_column(tmp_path, kind, name):
    with pytest.raises(SchemaError, match=f"field {name} has the name of the envelope's column {name}; .*{name}_2"):
        columns(declaration(tmp_path, kind, [name]))
    assert columns(declaration(tmp_path, kind, [name], columns={name: f"its_{name}"})).names == [f"its_{name}"]
    assert "struct" in str(columns(declaration(tmp_path, kind, [name], "struct")))


def test_a_name_that_is_given_has_to_be_free_and_its_field_to_be_there(tmp_path):
    for given, sentence in {
        '{"a": "b"}': "field b has the name of field a; ",
        '{"a": "Offset"}': "field a has the name of the envelope's column offset; ",
        '{"a": "x y"}': "field 'a': a column's name has no space",
        '{"c": "d"}': "columns: there is no field c",
        '{"a": ""}': "columns are an object",
        '["a"]': "columns are an object",
    }.items():
        for kind in FORMATS:
            with pytest.raises(SchemaError, match=sentence):
                columns(declaration(tmp_path, kind, ["a", "b"], columns=json.loads(given)))
    swapped = columns(declaration(tmp_path, "json", ["a", "b"], columns={"a": "b", "b": "a"}))
    assert swapped.names == ["b", "a"]


def test_the_table_keeps_the_names(tmp_path):
    schema = declaration(tmp_path, "json", ["timestamp", "zip code"], columns={"zip code": "zip", "timestamp": "at"})
    assert parse_payload_schema(schema.to_json()) == schema
    assert schema.arrow.names == ["at", "zip"]


def test_the_event_time_is_named_by_its_column():
    fields = [{"name": "timestamp", "type": "timestamp"}]
    given = {"fields": fields, "columns": {"timestamp": "sent_at"}, "event_time": {"column": "sent_at"}}
    assert parse_payload_schema(json.dumps(given)).event_time.column == "sent_at"


NAMES = {"timestamp": "sent_at", "key": "its_key", "in/value": "amount", "in/key": "currency"}
EVENT = {"timestamp": 7, "key": "k", "in": {"value": 1, "key": "EUR"}}
ROW = {"sent_at": 7, "its_key": "k", "in": {"amount": 1, "currency": "EUR"}}
AVRO = {
    "type": "record", "name": "E", "fields": [
        {"name": "timestamp", "type": "long"}, {"name": "key", "type": "string"},
        {"name": "in", "type": {"type": "record", "name": "I", "fields": [
            {"name": "value", "type": "long"}, {"name": "key", "type": "string"}]}},
    ],
}  # fmt: skip
PROPERTIES = {
    "timestamp": {"type": "integer"}, "key": {"type": "string"},
    "in": {"type": "object", "properties": {"value": {"type": "integer"}, "key": {"type": "string"}}},
}  # fmt: skip
TEXT = """syntax = "proto3"; message E { int64 timestamp = 1; string key = 2; I in = 3; }
message I { int64 value = 1; string key = 2; }"""


def encoded_by_avro():
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), EVENT)
    return out.getvalue()


def encoded_by_protobuf():
    message = protobuf_decoder(compile_proto("e.proto", {"e.proto": TEXT}), None)._class()
    message.timestamp, message.key = EVENT["timestamp"], EVENT["key"]
    inside = getattr(message, "in")
    inside.value, inside.key = 1, "EUR"
    return message.SerializeToString()


VALUES = {
    "avro": ("avsc", json.dumps(AVRO), encoded_by_avro, b""),
    "protobuf": ("proto", TEXT, encoded_by_protobuf, b"\x00"),
    "json": ("json", json.dumps({"type": "object", "properties": PROPERTIES}), lambda: json.dumps(EVENT).encode(), b""),
}


def decoded(schema, *values):
    payload = Payload(schema, columns(schema))
    found = payload.decode(pa.array(values, pa.binary()))
    return found.columns.to_pylist(), [(refusal.reason, refusal.message) for refusal in found.refusals]


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_a_registry_get_the_columns_that_are_named(tmp_path, kind):
    suffix, text, encode, indexes = VALUES[kind]
    (tmp_path / f"7.{suffix}").write_text(text)
    (tmp_path / "subjects.json").write_text(json.dumps({"subjects": {"t-value": [7]}}))
    given = json.dumps({"format": kind, "registry": ".", "columns": NAMES})
    schema = parse_payload_schema(given, directory=str(tmp_path))
    value = b"\x00" + (7).to_bytes(4, "big") + indexes + encode()
    assert decoded(schema, value, None, b"?") == (
        [ROW, dict.fromkeys(ROW)],
        [(Reason.FRAMING, "not in Confluent's wire format: no 0 and schema id at its start")],
    )


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_values_without_a_registry_get_the_columns_that_are_named(kind):
    _, text, encode, _ = VALUES[kind]
    text = base64.b64encode(compile_proto("e.proto", {"e.proto": text})).decode() if kind == "protobuf" else text
    schema = parse_payload_schema(json.dumps({"format": kind, "schema_text": text, "columns": NAMES}))
    assert decoded(schema, encode()) == ([ROW], [])


def declared_json(**types):
    fields = [{"name": name, "type": data_type, "nullable": False} for name, data_type in types.items()]
    given = {name: f"its {name}".replace(" ", "_") for name in types}
    return parse_payload_schema(json.dumps({"fields": fields, "columns": given}))


@pytest.mark.parametrize(
    "extra", [{}, {"d": "decimal(4,1)"}, {"m": {"type": "map", "keyType": "string", "valueType": "long"}}],
    ids=["kernel", "arrow", "values"],
)  # fmt: skip
def test_json_of_declared_fields_gets_the_columns_that_are_named_by_each_reader(extra):
    schema = declared_json(**{"timestamp": "long", "zip code": "string"}, **extra)
    more = {"d": 1, "m": {"a": 1}}
    value = json.dumps({"timestamp": 1, "zip code": "x"} | {name: more[name] for name in extra}).encode()
    rows, refused = decoded(schema, value, b'{"timestamp": 1}', b'{"its_timestamp": 1, "its_zip_code": "x"}')
    assert [(row["its_timestamp"], row["its_zip_code"]) for row in rows] == [(1, "x")]
    assert refused[0] == (Reason.MISSING, "field zip code is missing or null")
    assert refused[1][0] is Reason.MISSING


def test_a_registry_s_later_version_with_names_that_meet_makes_dead_letters(tmp_path):
    (tmp_path / "7.avsc").write_text(json.dumps(avro_schema(["id"], "struct")))
    (tmp_path / "8.avsc").write_text(json.dumps(avro_schema(["id", "ID"], "struct")))
    (tmp_path / "subjects.json").write_text(json.dumps({"subjects": {"t-value": [7]}}))
    schema = parse_payload_schema('{"format": "avro", "registry": "."}', directory=str(tmp_path))
    rows, [(reason, message)] = decoded(schema, b"\x00" + (8).to_bytes(4, "big") + b"\x02\x04")
    assert (rows, reason) == ([], Reason.UNUSABLE_SCHEMA)
    assert message.startswith("field in/ID has the name of field in/id; ")


def test_versions_of_a_schema_share_the_names(tmp_path):
    (tmp_path / "7.avsc").write_text(json.dumps(avro_schema(["id", "ID"], "top")))
    (tmp_path / "8.avsc").write_text(json.dumps(avro_schema(["id", "more"], "top")))
    (tmp_path / "subjects.json").write_text(json.dumps({"subjects": {"t-value": [7, 8]}}))
    given = '{"format": "avro", "registry": ".", "columns": {"ID": "upper", "more": "later"}}'
    schema = parse_payload_schema(given, directory=str(tmp_path))
    assert columns(schema).names == ["id", "upper", "later"]
    assert source_fields(declaration(tmp_path, "json", ["a"]), ())[0].name == "a"


def test_names_beside_a_file_go_before_its_own(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(
        json.dumps(json_declaration(["key", "value", "a"], "top") | {"columns": {"key": "k", "value": "v"}})
    )
    found = declared_schema(str(path), {"value": "its_value", "a": "b"})
    assert found is not None
    assert found.arrow.names == ["k", "its_value", "b"]
    with pytest.raises(SchemaError, match=r"schema.json: columns: there is no field c"):
        declared_schema(str(path), {"c": "d"})
    assert declared_schema(None, {}) is None
    with pytest.raises(SchemaError, match="together with a schema file"):
        declared_schema(None, {"a": "b"})
