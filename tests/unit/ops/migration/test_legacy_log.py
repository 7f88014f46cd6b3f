"""The log directory of Kafka 0.7: what is found in it, and exactly where it is damaged."""

import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import LogError
from millrace.fs import OsFileSystem
from millrace.records.compression import Codec
from millrace_ops.migration.legacy_log import (
    CHUNK_BYTES,
    Damage,
    LegacyFile,
    find_partitions,
    read_file,
    read_partition,
)
from millrace_support.legacy_messages import encode_messages

FS = OsFileSystem()
MESSAGES = [encode_messages([b"message %d" % number]) for number in range(5)]
SIZE = len(MESSAGES[0])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "00000000000.kafka"


def read(path, content):
    path.write_bytes(content)
    return list(read_file(FS, str(path)))


def payloads(items):
    return [payload for item in items if not isinstance(item, Damage) for payload in item.payloads]


def damages(items):
    return [(item.position, item.size_bytes) for item in items if isinstance(item, Damage)]


def numbered(*numbers):
    return [b"message %d" % number for number in numbers]


def test_messages_and_their_positions(path):
    wrapper = encode_messages(numbered(7, 8), codec=Codec.SNAPPY)
    items = read(path, MESSAGES[0] + wrapper + MESSAGES[1])
    assert payloads(items) == numbered(0, 7, 8, 1)
    assert [item.position for item in items] == [0, SIZE, SIZE + len(wrapper)]


def test_messages_across_and_above_a_chunk(path):
    large = [bytes([number]) * (CHUNK_BYTES - 100) for number in (1, 2, 3)] + [bytes(3 * CHUNK_BYTES), b"end"]
    assert payloads(read(path, encode_messages(large))) == large


def test_an_empty_file(path):
    assert read(path, b"") == []


def test_a_wrong_crc_costs_one_message(path):
    content = bytearray(b"".join(MESSAGES))
    content[2 * SIZE + 12] ^= 1
    items = read(path, content)
    assert payloads(items) == numbered(0, 1, 3, 4)
    assert damages(items) == [(2 * SIZE, SIZE)]
    assert "CRC-32 is" in items[2].reason


@pytest.mark.parametrize("length", [-1, 0, 4, SIZE, 1 << 20, 1 << 30])
def test_a_wrong_length_costs_one_message(path, length):
    content = bytearray(b"".join(MESSAGES))
    struct.pack_into(">i", content, 2 * SIZE, length)
    items = read(path, content)
    assert payloads(items) == numbered(0, 1, 3, 4)
    assert damages(items) == [(2 * SIZE, SIZE)]


def test_a_block_of_zeros_beyond_a_chunk(path):
    items = read(path, MESSAGES[0] + bytes(CHUNK_BYTES * 2 + 3) + MESSAGES[1])
    assert payloads(items) == numbered(0, 1)
    assert damages(items) == [(SIZE, CHUNK_BYTES * 2 + 3)]


def test_a_block_of_numbers_that_look_like_lengths(path):
    numbers = b"".join(number.to_bytes(4, "big") for number in range(200_000))
    items = read(path, MESSAGES[0] + numbers + MESSAGES[1])
    assert payloads(items) == numbered(0, 1)
    assert damages(items) == [(SIZE, len(numbers))]


def test_a_wrapper_that_can_not_be_opened_is_skipped_whole(path):
    broken = bytearray(encode_messages([b"x" * 99], codec=Codec.GZIP))
    broken[5] = Codec.SNAPPY  # outside of the CRC
    items = read(path, MESSAGES[0] + broken + MESSAGES[1])
    assert payloads(items) == numbered(0, 1)
    assert damages(items) == [(SIZE, len(broken))]
    assert "not a snappy block" in items[1].reason


def test_a_tail_that_is_cut_short(path):
    items = read(path, b"".join(MESSAGES)[:-3])
    assert payloads(items) == numbered(0, 1, 2, 3)
    assert damages(items) == [(4 * SIZE, SIZE - 3)]


@settings(max_examples=200, deadline=None)
@given(
    flips=st.lists(st.tuples(st.integers(0, 5 * SIZE - 1), st.integers(1, 255)), max_size=5),
    cut=st.integers(0, 5 * SIZE),
    inserted=st.binary(max_size=40),
)
def test_any_damage_leaves_every_byte_accounted_for(path, flips, cut, inserted):
    content = bytearray(b"".join(MESSAGES))
    for position, value in flips:
        content[position] ^= value
    content[cut:cut] = inserted
    items = read(path, content)
    position = 0
    for item in items:
        assert item.position == position
        assert item.size_bytes > 0
        position += item.size_bytes
    assert position == len(content)


def make_partition(directory, *contents):
    directory.mkdir(parents=True)
    position = 0
    for content in contents:
        (directory / f"{position:011}.kafka").write_bytes(content)
        position += len(content)


def test_partitions_of_a_log_directory(tmp_path):
    for name in ("events_0", "events_10", "events_2", "events_x", "other_0", "events"):
        make_partition(tmp_path / name, MESSAGES[0], MESSAGES[1])
    (tmp_path / "events_2" / "readme.txt").write_bytes(b"")
    found = find_partitions(FS, str(tmp_path), "events")
    assert [partition.partition for partition in found] == [0, 2, 10]
    prefix = str(tmp_path / "events_2")
    assert found[1].files == (
        LegacyFile(f"{prefix}/00000000000.kafka", 0, SIZE),
        LegacyFile(f"{prefix}/{SIZE:011}.kafka", SIZE, SIZE),
    )


@pytest.mark.parametrize(("name", "number"), [("events_3", 3), ("anything", 0)])
def test_one_partitions_directory(tmp_path, name, number):
    make_partition(tmp_path / name, MESSAGES[0])
    (found,) = find_partitions(FS, f"{tmp_path / name}{os.sep}", "topic")
    assert (found.partition, len(found.files)) == (number, 1)


def test_no_partition_at_all(tmp_path):
    with pytest.raises(LogError, match="no directory events_N"):
        find_partitions(FS, str(tmp_path), "events")


def test_a_gap_between_files_is_damage(tmp_path):
    make_partition(tmp_path / "t_0", MESSAGES[0], MESSAGES[1], MESSAGES[2])
    (tmp_path / "t_0" / f"{SIZE:011}.kafka").unlink()
    (partition,) = find_partitions(FS, str(tmp_path), "t")
    items = list(read_partition(FS, partition))
    assert payloads(item for _, item in items) == numbered(0, 2)
    assert damages(item for _, item in items) == [(SIZE, SIZE)]
    assert items[1][0].path.endswith("00000000000.kafka")
    assert items[1][1].reason == f"the log goes on at position {2 * SIZE}, not at {SIZE}"
