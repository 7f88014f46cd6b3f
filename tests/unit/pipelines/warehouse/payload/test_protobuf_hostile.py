"""Strings that proto2 lets through though they are no text, and fields named like methods: read, or refused alone."""

import keyword

import pyarrow as pa
import pytest
from google.protobuf.message import Message

from millrace_pipelines.warehouse.payload.outcome import Reason
from millrace_pipelines.warehouse.payload.protobuf import compile_proto, protobuf_decoder

TEXTS = """
syntax = "proto2";
message Texts {
  optional string single = 1;
  repeated string list = 2;
  map<string, string> map = 3;
  optional Inner inner = 4;
  repeated Inner inners = 5;
  map<int32, Inner> inner_map = 6;
  oneof choice { string left = 7; int32 right = 8; }
  map<string, Kind> kinds = 9;
  message Inner { optional string name = 1; repeated string names = 2; }
  enum Kind { NONE = 0; SOME = 1; }
}
"""


def field(number, payload):
    """Returns a field of bytes."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def decode(decoder, *values):
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    return decoded


def inner(octets):
    return field(1, octets)


PLACES = {
    "single": lambda octets: field(1, octets),
    "list": lambda octets: field(2, b"fine") + field(2, octets),
    "map key": lambda octets: field(3, field(1, octets) + field(2, b"v")),
    "map key beside another": lambda octets: field(3, field(1, b"k")) + field(3, field(1, octets) + field(2, b"v")),
    "map value": lambda octets: field(3, field(1, b"k") + field(2, octets)),
    "inner": lambda octets: field(4, inner(octets)),
    "inner list": lambda octets: field(4, field(2, octets)),
    "inners": lambda octets: field(5, inner(b"")) + field(5, inner(octets)),
    "inner of a map": lambda octets: field(6, b"\x08\x01" + field(2, inner(octets))),
    "oneof": lambda octets: field(7, octets),
    "map key before an enum": lambda octets: field(9, field(1, octets) + b"\x10\x01"),
}
NO_TEXTS = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]


@pytest.mark.parametrize("place", PLACES)
def test_a_text_that_is_not_utf8_is_refused_alone(place):
    decoder = protobuf_decoder(compile_proto("texts.proto", {"texts.proto": TEXTS}), "Texts")
    make = PLACES[place]
    good = [make("é𝄞\0".encode()), b"", make(b"")]
    values = [value for octets in NO_TEXTS for value in (*good, make(octets))]
    decoded = decode(decoder, *values)
    assert [refusal.row for refusal in decoded.refusals] == list(range(3, len(values), 4))
    assert {refusal.reason for refusal in decoded.refusals} == {Reason.MALFORMED}
    name = next(one.name for one in decoder.fields if decode(decoder, good[0]).columns[one.name][0].as_py())
    assert all(f"field {name}" in refusal.message and "UTF" in refusal.message for refusal in decoded.refusals)
    alone = decode(decoder, *good).columns
    assert decoded.columns.to_pylist() == alone.to_pylist() * len(NO_TEXTS)


NAMES = sorted(
    {name for name in (*dir(Message), *dir(object), *keyword.kwlist, *keyword.softkwlist) if name.isidentifier()}
    | {"Clear", "ByteSize", "DESCRIPTOR", "Extensions", "FromString", "self", "cls", "items", "value", "seconds"}
)


@pytest.mark.parametrize(
    "kind", ["optional string", "repeated string", "string", "int32", "Inner", "map<string, string>"]
)
@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_a_field_may_have_any_name(syntax, kind):
    label = "optional " if syntax == "proto2" and kind.split()[0] in ("string", "int32", "Inner") else ""
    numbers = {name: number for number, name in enumerate(names_apart(NAMES), start=1)}
    fields = "".join(f"{label}{kind} {name} = {number};\n" for name, number in numbers.items())
    inside = f"message Inner {{ {'optional ' if syntax == 'proto2' else ''}int32 n = 1; }}"
    text = f'syntax = "{syntax}"; {inside} message Named {{\n{fields}}}'
    decoder = protobuf_decoder(compile_proto("names.proto", {"names.proto": text}), "Named")
    assert [one.name for one in decoder.fields] == list(numbers)
    payload = {"int32": None, "Inner": b"\x08\x07", "map<string, string>": field(1, b"k") + field(2, b"v")}.get(
        kind, b"x"
    )
    value = b"".join(written(number, payload) for number in numbers.values())
    decoded = decode(decoder, value)
    assert decoded.refusals == []
    wanted = {"int32": 7, "Inner": {"n": 7}, "map<string, string>": [("k", "v")], "repeated string": ["x"]}.get(
        kind, "x"
    )
    assert decoded.columns.to_pylist() == [dict.fromkeys(numbers, wanted)]
    assert decode(decoder, b"\xff\xff").refusals[0].reason is Reason.MALFORMED
    assert decode(decoder, value + written(5000, b"new")).refusals[0].reason is Reason.NEWER_SCHEMA


def names_apart(names):
    """Returns the names without those that differ in case alone, or in underscores alone."""
    return {name.casefold().replace("_", ""): name for name in names}.values()


def written(number, payload):
    tag = number << 3 | (0 if payload is None else 2)
    out = bytearray()
    while tag > 0x7F:
        out.append(tag & 0x7F | 0x80)
        tag >>= 7
    out.append(tag)
    return bytes(out) + (b"\x07" if payload is None else bytes([len(payload)]) + payload)


def test_a_required_field_may_be_named_like_a_method():
    text = 'syntax = "proto2"; message Named { required int32 IsInitialized = 1; required int32 HasField = 2; }'
    decoder = protobuf_decoder(compile_proto("names.proto", {"names.proto": text}), "Named")
    decoded = decode(decoder, b"\x08\x01\x10\x02", b"\x08\x01")
    assert decoded.columns.to_pylist() == [{"IsInitialized": 1, "HasField": 2}]
    assert [(one.reason, one.message) for one in decoded.refusals] == [(Reason.MISSING, "field HasField is missing")]


def test_members_of_a_map_type_and_nested_types_may_be_named_like_methods():
    text = """syntax = "proto3"; message Named {
      message ByteSize { message HasField { int32 items = 1; }
        HasField DESCRIPTOR = 1; map<string, HasField> Clear = 2; }
      enum MergeFromString { DiscardUnknownFields = 0; IsInitialized = 1; }
      ByteSize a = 1; MergeFromString b = 2; }"""
    decoder = protobuf_decoder(compile_proto("names.proto", {"names.proto": text}), "Named")
    value = field(1, field(1, b"\x08\x05") + field(2, field(1, b"k") + field(2, b"\x08\x06"))) + b"\x10\x01"
    assert decode(decoder, value).columns.to_pylist() == [
        {"a": {"DESCRIPTOR": {"items": 5}, "Clear": [("k", {"items": 6})]}, "b": "IsInitialized"}
    ]
