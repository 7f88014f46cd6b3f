"""Protobuf values: what Google's library writes is read as it was; what the schema does not have is refused."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.outcome import Reason
from millrace_pipelines.warehouse.payload.protobuf import compile_proto, protobuf_decoder

PROTO = """
syntax = "proto3";
package events;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Event {
  int64 id = 1;
  optional int32 small = 2;
  uint64 big = 3;
  double ratio = 4;
  string text = 5;
  bytes raw = 6;
  Kind kind = 7;
  google.protobuf.Timestamp at = 8;
  google.protobuf.StringValue wrapped = 9;
  repeated int32 list = 10;
  map<string, Inner> map = 11;
  Inner inner = 12;
  repeated Inner inners = 13;
  oneof choice { uint32 left = 14; string right = 15; }
  enum Kind { NONE = 0; SOME = 1; }
  message Inner { optional string name = 1; sint32 number = 2; }
  Event parent = 16;
}
message Newer { int64 id = 1; string more = 99; }
"""
DESCRIPTORS = compile_proto("events.proto", {"events.proto": PROTO})
DECODER = protobuf_decoder(DESCRIPTORS, "events.Event")
EVENT = DECODER._class
int32 = st.integers(-(2**31), 2**31 - 1)
texts = st.text(max_size=6)
inner = st.fixed_dictionaries({"name": st.none() | texts, "number": int32})
events = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | int32,
        "big": st.integers(0, 2**64 - 1),
        "ratio": st.floats(allow_nan=False),
        "text": texts,
        "raw": st.binary(max_size=6),
        "kind": st.sampled_from(["NONE", "SOME"]),
        "list": st.lists(int32, max_size=4),
        "map": st.dictionaries(texts, inner, max_size=3),
        "inner": st.none() | inner,
        "inners": st.lists(inner, max_size=3),
        "left": st.none() | st.integers(0, 2**32 - 1),
    }
)


def written(event):
    """The message in bytes, made field by field."""
    message = EVENT(**{name: event[name] for name in ("id", "big", "ratio", "text", "raw", "kind", "list")})
    for name in ("small", "left"):
        if event[name] is not None:
            setattr(message, name, event[name])
    for key, value in event["map"].items():
        fill(message.map[key], value)
    for value in event["inners"]:
        fill(message.inners.add(), value)
    if event["inner"] is not None:
        message.inner.SetInParent()
        fill(message.inner, event["inner"])
    return message.SerializeToString()


def fill(message, values):
    message.number = values["number"]
    if values["name"] is not None:
        message.name = values["name"]


def decode(*values, decoder=DECODER):
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    return decoded


@settings(deadline=None, max_examples=60)
@given(st.lists(events, max_size=8))
def test_what_was_written_as_a_message_is_read(found):
    decoded = decode(*map(written, found))
    assert decoded.refusals == []
    rows = [row | {"map": dict(row["map"])} for row in decoded.columns.to_pylist()]
    assert rows == [event | {"at": None, "wrapped": None, "right": None} for event in found]


def test_well_known_types():
    message = EVENT(left=3)
    message.at.FromDatetime(datetime(2013, 1, 1, 5, 0, 0, 250000))  # noqa: DTZ001  the library takes it for UTC
    message.wrapped.value = ""
    [row] = decode(message.SerializeToString()).columns.to_pylist()
    assert row["at"] == datetime(2013, 1, 1, 5, 0, 0, 250000, tzinfo=UTC)
    assert (row["wrapped"], row["left"], row["right"], row["kind"]) == ("", 3, None, "NONE")


def test_what_does_not_fit_is_refused_alone():
    nanos = EVENT()
    nanos.at.nanos = 1
    beyond = EVENT()
    beyond.at.seconds = 2**50
    newer = protobuf_decoder(DESCRIPTORS, "events.Newer")._class(id=1, more="x")
    good = written(
        dict.fromkeys(("small", "inner", "left")) | {"id": 1, "big": 2, "ratio": 0.5, "text": "", "raw": b""}
        | {"kind": "SOME", "list": [], "map": {}, "inners": []}
    )  # fmt: skip
    bad = {
        b"\xff": Reason.MALFORMED,
        good + b"\x08": Reason.MALFORMED,
        b"\x2a\x01\xff": Reason.MALFORMED,
        newer.SerializeToString(): Reason.NEWER_SCHEMA,
        b"\x62\x03\x98\x06\x01": Reason.NEWER_SCHEMA,
        b"\x38\x07": Reason.NEWER_SCHEMA,
        nanos.SerializeToString(): Reason.RANGE,
        beyond.SerializeToString(): Reason.RANGE,
    }
    decoded = decode(*(value for one in bad for value in (good, one)))
    assert [(refusal.row, refusal.reason) for refusal in decoded.refusals] == [
        (2 * place + 1, reason) for place, reason in enumerate(bad.values())
    ]
    assert decoded.columns.num_rows == len(bad)


def test_a_type_within_itself_has_no_column():
    assert DECODER.without_column == ["parent"]


def test_types_are_found_by_name_or_place():
    assert [field.name for field in protobuf_decoder(DESCRIPTORS, None, (1,)).fields] == ["id", "more"]
    assert [field.name for field in protobuf_decoder(DESCRIPTORS, None, (0, 0)).fields] == ["name", "number"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: protobuf_decoder(DESCRIPTORS, "events.Other"), "no message events.Other"),
        (lambda: protobuf_decoder(DESCRIPTORS, None, (7,)), r"no message at \[7\]"),
        (lambda: protobuf_decoder(b"\xff", None), "not a Protobuf descriptor set"),
        (lambda: protobuf_decoder(b"", None), "has no file"),
        (lambda: compile_proto("a.proto", {"a.proto": "nonsense"}), "a.proto"),
        (lambda: compile_proto("a.proto", {"a.proto": "", "../b.proto": ""}), "not the name"),
    ],
)
def test_a_schema_that_can_t_be_used_is_named(call, message):
    with pytest.raises(SchemaError, match=message):
        call()


def test_proto2_requires_what_it_says():
    descriptors = compile_proto("old.proto", {"old.proto": 'syntax = "proto2"; message Old { required int32 id = 1; }'})
    decoded = decode(b"", b"\x08\x01", decoder=protobuf_decoder(descriptors, "Old"))
    assert [refusal.reason for refusal in decoded.refusals] == [Reason.MISSING]
    assert decoded.columns.to_pylist() == [{"id": 1}]
