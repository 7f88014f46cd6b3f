"""Records of `__consumer_offsets`: the bytes that Kafka writes, every version of them, and bytes that are none."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import CorruptRecordError
from millrace.wire.encoder import Encoder, unsigned_varint
from millrace_broker.cluster.coordinator_topic import java_hash, partition_of
from millrace_broker.groups.records import (
    CommittedOffset,
    OffsetKey,
    StoredGroup,
    StoredMember,
    group_record,
    key_version,
    offset_record,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
)

TEXTS = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(
    StoredMember, TEXTS, st.none() | TEXTS, TEXTS, TEXTS, st.integers(0, 2**31 - 1), INT32, st.binary(), st.binary()
)
GROUPS = st.builds(
    StoredGroup, TEXTS, INT32, st.none() | TEXTS, st.none() | TEXTS, INT64, st.lists(MEMBERS, max_size=3).map(tuple)
)


def test_an_offset_is_written_as_kafka_writes_it():
    key = OffsetKey("g", "events", 3)
    record = offset_record(key, CommittedOffset(42, 7, "note", 1_700_000_000_000))
    assert record.key == bytes.fromhex("000100016700066576656e747300000003")
    assert record.value == bytes.fromhex("0003000000000000002a0000000700046e6f74650000018bcfe56800")
    assert offset_record(key, None) == (record.key, None)


def test_an_offset_with_an_expiry_is_written_in_the_version_that_has_one():
    record = offset_record(OffsetKey("g", "t", 0), CommittedOffset(1, 5, "", 10, 20))
    assert record.value == bytes.fromhex("000100000000000000010000000000000000000a0000000000000014")
    assert read_offset_value(record.value) == CommittedOffset(1, -1, "", 10, 20)


def test_a_group_is_written_as_kafka_writes_it():
    member = StoredMember("m", None, "c", "/h", 2, 1, b"s", b"")
    record = group_record("g", StoredGroup("consumer", 5, "range", "m", 9, (member,)))
    assert record.key == bytes.fromhex("0002000167")
    assert record.value == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000005 0005 72616e6765 0001 6d 0000000000000009 00000001"
        "0001 6d ffff 0001 63 0002 2f68 00000002 00000001 00000001 73 00000000"
    )  # fmt: skip


@given(st.builds(OffsetKey, TEXTS, TEXTS, INT32), st.builds(CommittedOffset, INT64, INT32, TEXTS, INT64, st.just(-1)))
def test_offsets_come_back(key, committed):
    record = offset_record(key, committed)
    assert (key_version(record.key), read_offset_key(record.key)) == (1, key)
    assert read_offset_value(record.value) == committed


@given(TEXTS, GROUPS)
def test_groups_come_back(group_id, group):
    record = group_record(group_id, group)
    assert (key_version(record.key), read_group_key(record.key)) == (2, group_id)
    assert read_group_value(record.value) == group


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 000000000000002a 0001 6e 000000000000000a", CommittedOffset(42, -1, "n", 10)),
        ("0001 000000000000002a 0001 6e 000000000000000a 0000000000000014", CommittedOffset(42, -1, "n", 10, 20)),
        ("0002 000000000000002a 0001 6e 000000000000000a", CommittedOffset(42, -1, "n", 10)),
        ("0003 000000000000002a 00000007 0001 6e 000000000000000a", CommittedOffset(42, 7, "n", 10)),
        ("0004 000000000000002a 00000007 02 6e 000000000000000a 00", CommittedOffset(42, 7, "n", 10)),
        ("0004 000000000000002a 00000007 02 6e 000000000000000a 01 05 02 abcd",
         CommittedOffset(42, 7, "n", 10)),
    ],
    ids=["v0", "v1", "v2", "v3", "v4", "v4 with a tagged field"],
)  # fmt: skip
def test_every_version_of_an_offset_is_read(value, expected):
    assert read_offset_value(bytes.fromhex(value)) == expected


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version):
    out = Encoder(flexible=version >= 4)
    out.int16(version)
    out.string("consumer")
    out.int32(5)
    out.string("range")
    out.string("m")
    if version >= 2:
        out.int64(9)
    out.array_length(1)
    out.string("m")
    if version >= 3:
        out.string("static")
    out.string("c")
    out.string("/h")
    if version >= 1:
        out.int32(60_000)
    out.int32(10_000)
    out.bytes_(b"sub")
    out.bytes_(b"part")
    out.no_tagged_fields()
    out.no_tagged_fields()
    member = StoredMember(
        "m", "static" if version >= 3 else None, "c", "/h", 60_000 if version >= 1 else 10_000, 10_000, b"sub", b"part"
    )
    expected = StoredGroup("consumer", 5, "range", "m", 9 if version >= 2 else -1, (member,))
    assert read_group_value(b"".join(out.parts)) == expected


@pytest.mark.parametrize("read", [read_offset_key, read_group_key, read_offset_value, read_group_value])
@given(data=st.binary(max_size=60), version=st.integers(-1, 6))
def test_any_bytes_give_a_value_or_a_typed_error(read, data, version):
    with suppress(CorruptRecordError):
        read(version.to_bytes(2, "big", signed=True) + data)


def test_lengths_that_cannot_be_are_refused():
    for value in ("0005", "0003", "0003" + "00" * 12 + "fffe", "0004" + "00" * 12 + unsigned_varint(2**31).hex()):
        with pytest.raises(CorruptRecordError):
            read_offset_value(bytes.fromhex(value))
    with pytest.raises(CorruptRecordError):
        key_version(b"\x00")


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("hello", 99_162_322), ("polygenelubricants", -(2**31)), ("\N{GRINNING FACE}", 1_772_899), ("ü", 252)],
)
def test_the_hash_is_javas(text, value):
    assert java_hash(text) == value
    assert partition_of(text, 50) == (0 if value == -(2**31) else abs(value) % 50)
