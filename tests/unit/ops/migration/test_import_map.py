"""The map of an import: each position of a 0.7 log becomes the offset of the first record at or behind it."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import LogError, SetupError
from millrace.fs import OsFileSystem
from millrace.records.compression import Codec
from millrace_ops.migration.import_map import Batch, ImportMap, Subject, offset_of, read_map
from millrace_ops.migration.legacy_log import find_partitions
from millrace_support.legacy_messages import encode_messages

FS = OsFileSystem()
SUBJECT = Subject("t", "id", "/old", "t")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("old")


def written(folder, counts, cut):
    """Writes messages with so many payloads each, in two files; the position of each message, and of the log's end."""
    messages = [encode_messages([b"v"] * count, codec=Codec.NONE if count == 1 else Codec.GZIP) for count in counts]
    positions = [0, *accumulate(map(len, messages))]
    for file in (folder / "t_0").glob("*"):
        file.unlink()
    (folder / "t_0").mkdir(exist_ok=True)
    for first, some in ((0, messages[:cut]), (cut, messages[cut:])):
        (folder / "t_0" / f"{positions[first]:011}.kafka").write_bytes(b"".join(some))
    return positions


def batches_of(counts, positions, size):
    """The entries of an import from offset 100 on, in batches of `size` records."""
    places = [(position, one) for position, count in zip(positions, counts, strict=False) for one in range(count)]
    return [
        Batch(0, *places[first], 100 + first, len(places[first : first + size]))
        for first in range(0, len(places), size)
    ]


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=12), cut=st.integers(0, 12), size=st.integers(1, 7))
def test_each_position_becomes_the_offset_of_its_message(folder, counts, cut, size):
    positions = written(folder, counts, min(cut, len(counts) - 1))
    [log] = find_partitions(FS, str(folder), "t")
    batches = batches_of(counts, positions, size)
    offsets = [100, *(100 + sum(counts[: number + 1]) for number in range(len(counts)))]
    for number, position in enumerate(positions):
        assert offset_of(FS, log, batches, position) == offsets[number]
        if number < len(counts):  # within a message
            assert offset_of(FS, log, batches, position + 1) == offsets[number]


def test_what_was_not_imported_has_no_offset(folder):
    positions = written(folder, [1, 1, 1], 1)
    [log] = find_partitions(FS, str(folder), "t")
    assert offset_of(FS, log, [Batch(0, 0, 0, 5, 2)], positions[2]) == 7
    with pytest.raises(LogError, match="behind what was imported"):
        offset_of(FS, log, [Batch(0, 0, 0, 5, 2)], positions[3])
    with pytest.raises(LogError, match="nothing of partition 0 was imported"):
        offset_of(FS, log, [Batch(1, 0, 0, 5, 2)], 0)


def test_a_position_that_the_old_log_had_deleted_becomes_the_first_offset(folder):
    positions = written(folder, [1, 1, 1], 1)
    (folder / "t_0" / "00000000000.kafka").unlink()
    [log] = find_partitions(FS, str(folder), "t")
    assert offset_of(FS, log, [Batch(0, positions[1], 0, 0, 2)], 3) == 0


def test_two_imports_do_not_share_a_map(tmp_path):
    path = str(tmp_path / "map.jsonl")
    with (
        ImportMap(FS, path, SUBJECT),
        pytest.raises(SetupError, match="an import is under way with this map"),
        ImportMap(OsFileSystem(), path, SUBJECT),
    ):
        pass


def test_a_map_is_taken_up_without_a_line_that_was_torn(tmp_path):
    path = str(tmp_path / "map.jsonl")
    first, second = Batch(0, 0, 0, 0, 3), Batch(1, 9, 2, 7, 1)
    with ImportMap(FS, path, SUBJECT) as noted:
        noted.add(first)
    with open(path, "ab") as file:
        file.write(b'{"partition": 0')
    with ImportMap(FS, path, SUBJECT) as noted:
        assert (noted.last(0), noted.last(1)) == (first, None)
        noted.add(second)
    assert read_map(FS, path) == (SUBJECT, [first, second])
