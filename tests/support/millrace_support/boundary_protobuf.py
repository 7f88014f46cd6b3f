"""Boundary values in Protobuf, written byte by byte: messages of proto2, whose strings may be any bytes."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal

from millrace_pipelines.warehouse.payload.protobuf import compile_proto
from millrace_support.boundary_values import (
    LETTER,
    NO_TEXTS,
    PLACES,
    Case,
    Format,
    Sample,
    booleans,
    doubles,
    floats,
    inside,
    integers,
    moments,
    octets,
    texts,
)

Encoded = tuple[bytes, object]
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
PROTO = """
syntax = "proto2";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Enum {{ A = 0; B = 1; }}
{structs}
message Record {{
{fields}
  oneof choice {{ string left = 900; int32 right = 901; }}
  repeated int64 packed = 902 [packed = true];
  optional Deep deep = 903;
}}
message Deep {{ optional Deep2 inner = 1; }}
message Deep2 {{ repeated Deep3 inner = 1; }}
message Deep3 {{ map<int32, string> texts = 1; optional string text = 2; }}
"""


def protobuf(seed: int) -> Format:
    """Returns a table of messages, without a registry's frame."""
    kinds = _kinds(seed)
    numbers = {name + place: n for n, (place, name) in enumerate(((p, k) for p in PLACES for k in kinds), start=1)}
    structs = "".join(f"message S{name} {{ optional {kind} x = 1; }}\n" for name, (kind, _, _) in kinds.items())
    fields = "".join(
        f"  {_declared(place, name, kind)} {name}{place} = {numbers[name + place]};\n"
        for place in PLACES
        for name, (kind, _, _) in kinds.items()
    )
    text = PROTO.format(structs=structs, fields=fields)
    descriptors = base64.b64encode(compile_proto("record.proto", {"record.proto": text})).decode()
    schema = {"format": "protobuf", "schema_text": descriptors, "message": "Record"}
    samples = [
        Sample(_enclosed(place, numbers[name + place], wire_type, encoded), name + place, inside(place, expected))
        for place in PLACES
        for name, (_, wire_type, cases) in kinds.items()
        for encoded, expected in cases
    ]
    return Format(schema, [*samples, *_others(numbers)])


def empty_row(schema_names: Sequence[str]) -> Mapping[str, object]:
    """Returns what the columns have that a message does not set: lists and maps are empty, all else is null."""
    empty = ("_list", "_map")
    return {name: [] if name.endswith(empty) or name == "packed" else None for name in schema_names}


def _kinds(seed: int) -> Mapping[str, tuple[str, int, Sequence[Encoded]]]:
    """Returns by name each type, how its values lie in a message, and these values."""
    ints = [case for case in integers(32, seed) if case.expected is not LETTER]
    longs = [case for case in integers(64, seed) if case.expected is not LETTER]
    naturals = [Case(int(str(one.written)) % 2**32, int(str(one.written)) % 2**32) for one in ints]
    large = [Case(int(str(one.written)) % 2**64, Decimal(int(str(one.written)) % 2**64)) for one in longs]
    no_texts = [(_bytes(one), LETTER) for one in NO_TEXTS]
    wrapped: list[Encoded] = [(_bytes(_field(1, VARINT, encoded)), one) for encoded, one in _encoded(longs, _varint)]
    wrapped_texts: list[Encoded] = [
        (_bytes(_field(1, BYTES, encoded)), one) for encoded, one in _encoded(texts(seed), _text)
    ]
    return {
        "int32": ("int32", VARINT, _encoded(ints, _varint)),
        "sint32": ("sint32", VARINT, _encoded(ints, lambda one: _varint((one << 1) ^ (one >> 31)))),
        "sfixed32": ("sfixed32", FIXED32, _encoded(ints, lambda one: struct.pack("<i", one))),
        "int64": ("int64", VARINT, _encoded(longs, _varint)),
        "sint64": ("sint64", VARINT, _encoded(longs, lambda one: _varint((one << 1) ^ (one >> 63)))),
        "sfixed64": ("sfixed64", FIXED64, _encoded(longs, lambda one: struct.pack("<q", one))),
        "uint32": ("uint32", VARINT, _encoded(naturals, _varint)),
        "fixed32": ("fixed32", FIXED32, _encoded(naturals, lambda one: struct.pack("<I", one))),
        "uint64": ("uint64", VARINT, _encoded(large, _varint)),
        "fixed64": ("fixed64", FIXED64, _encoded(large, lambda one: struct.pack("<Q", one))),
        "float": ("float", FIXED32, _encoded(floats(seed), lambda one: struct.pack("<f", one))),
        "double": ("double", FIXED64, _encoded(doubles(seed), lambda one: struct.pack("<d", one))),
        "bool": ("bool", VARINT, _encoded(booleans(), _varint)),
        "string": ("string", BYTES, [*_encoded(texts(seed), _text), *no_texts]),
        "bytes": ("bytes", BYTES, _encoded(octets(seed), _bytes)),
        "enum": ("Enum", VARINT, [(_varint(0), "A"), (_varint(1), "B"), (_varint(7), LETTER), (_varint(-1), LETTER)]),
        "moment": ("google.protobuf.Timestamp", BYTES, list(_moments(seed))),
        "wrapped": ("google.protobuf.Int64Value", BYTES, wrapped),
        "wrapped_text": ("google.protobuf.StringValue", BYTES, wrapped_texts),
    }


def _moments(seed: int) -> Iterator[Encoded]:
    for case in moments(seed):
        seconds, rest = divmod(int(str(case.written)), 1_000_000)
        yield _bytes(_moment(seconds, rest * 1000)), case.expected
    for seconds, nanos in ((0, 1), (0, 999), (0, -1000), (0, 1_000_000_000), (2**63 - 1, 0), (-(2**63), 0)):
        yield _bytes(_moment(seconds, nanos)), LETTER


def _moment(seconds: int, nanos: int) -> bytes:
    return _field(1, VARINT, _varint(seconds)) + _field(2, VARINT, _varint(nanos))


def _encoded(cases: Iterator[Case] | Sequence[Case], encode: Callable[..., bytes]) -> list[Encoded]:
    return [(encode(case.written), case.expected) for case in cases]


def _varint(number: int) -> bytes:
    number %= 2**64
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(one: bytes) -> bytes:
    return _varint(len(one)) + one


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _field(number: int, wire_type: int, encoded: bytes) -> bytes:
    return _varint(number << 3 | wire_type) + encoded


def _declared(place: str, name: str, kind: str) -> str:
    return {"": f"optional {kind}", "_list": f"repeated {kind}", "_map": f"map<string, {kind}>"}.get(
        place, f"optional S{name}"
    )


def _enclosed(place: str, number: int, wire_type: int, encoded: bytes) -> bytes:
    """Returns the field of a value, which is the same alone and in a list; of an entry; or of a message around it."""
    if place == "_map":
        return _field(number, BYTES, _bytes(_field(1, BYTES, _text("k")) + _field(2, wire_type, encoded)))
    if place == "_struct":
        return _field(number, BYTES, _bytes(_field(1, wire_type, encoded)))
    return _field(number, wire_type, encoded)


def _others(numbers: Mapping[str, int]) -> Iterator[Sample]:
    """Yields empty messages, keys that are no text or there twice, nested texts, and bytes that are no message."""
    entries = numbers["int64_map"]
    entry = _entry(_text("k"), 7)
    for octets_of_text in NO_TEXTS:
        deep = _field(1, BYTES, _bytes(_field(1, BYTES, _bytes(_field(2, BYTES, _bytes(octets_of_text))))))
        yield Sample(_field(903, BYTES, _bytes(deep)), "deep", LETTER)
        yield Sample(_field(900, BYTES, _bytes(octets_of_text)), "left", LETTER)
        yield Sample(_field(entries, BYTES, _entry(_bytes(octets_of_text), 7)), "int64_map", LETTER)
    for value, column, expected in (
        (b"", "int64", None),
        (_field(entries, BYTES, entry) + _field(entries, BYTES, _entry(_text("k"), 8)), "int64_map", [("k", 8)]),
        (_field(entries, BYTES, _entry(_text("\0𝄞"), 7)) + _field(entries, BYTES, _entry(_text(""), 1)),
         "int64_map", [("", 1), ("\0𝄞", 7)]),
        (_field(entries, BYTES, _bytes(b"")), "int64_map", [("", 0)]),
        (_field(902, BYTES, _bytes(_varint(1) + _varint(-1))), "packed", [1, -1]),
        (_field(900, BYTES, _text("é")), "left", "é"),
        (_field(903, BYTES, _bytes(b"")), "deep", {"inner": None}),
        (_field(numbers["moment"], BYTES, _bytes(b"")), "moment", _epoch()),
        (_field(numbers["string_struct"], BYTES, _bytes(b"")), "string_struct", {"x": None}),
        (_field(999, VARINT, _varint(1)), "int64", LETTER),
        (b"\xff", "int64", LETTER),
        (_field(numbers["int64"], VARINT, b"\xff" * 11), "int64", LETTER),
        (_field(numbers["string"], BYTES, _varint(9) + b"short"), "string", LETTER),
        (b"\0", "int64", LETTER),
    ):  # fmt: skip
        yield Sample(value, column, expected)
    yield Sample(None, "int64", None)


def _entry(key: bytes, number: int) -> bytes:
    return _bytes(_field(1, BYTES, key) + _field(2, VARINT, _varint(number)))


def _epoch() -> object:
    return next(case.expected for case in moments(0) if case.written == 0)
