import struct

import pytest

from millrace_broker.storage.segments.indexes import SEARCHED_AT_ONCE, IndexFile, OffsetIndex, TimeIndex
from millrace_support.crash_fs import CrashFileSystem

ENTRIES = [(3, 0), (7, 100), (8, 250), (20, 400)]


def offset_index(fs: CrashFileSystem, max_bytes: int = 4096) -> OffsetIndex:
    return OffsetIndex(fs, "/0.index", max_bytes)


def grown(fs: CrashFileSystem) -> OffsetIndex:
    index = offset_index(fs)
    index.grow()
    for entry in ENTRIES:
        index.append(*entry)
    return index


@pytest.mark.parametrize("sealed", [False, True])
def test_floor_is_the_last_entry_at_or_below(sealed: bool) -> None:
    index = grown(CrashFileSystem())
    if sealed:
        index.seal()
    assert index.is_sealed is sealed
    assert [index.floor(offset) for offset in (2, 3, 6, 7, 19, 20, 1 << 40)] == [
        None, (3, 0), (3, 0), (7, 100), (8, 250), (20, 400), (20, 400),
    ]  # fmt: skip
    assert [index.floor_value(position) for position in (0, 99, 250, 399, 9999)] == [
        (3, 0), (3, 0), (8, 250), (8, 250), (20, 400),
    ]  # fmt: skip
    assert list(index) == ENTRIES
    assert len(index) == len(ENTRIES)
    assert index.last == (20, 400)


def test_entries_lie_in_the_file_as_kafka_writes_them() -> None:
    fs = CrashFileSystem()
    index = grown(fs)
    index.write()
    fd = fs.open("/0.index")
    assert fs.pread(fd, 100, 0) == b"".join(struct.pack(">ii", *entry) for entry in ENTRIES)
    times = TimeIndex(fs, "/0.timeindex", 4096)
    times.grow()
    times.append(1_700_000_000_000, 5)
    times.seal()
    fd = fs.open("/0.timeindex")
    assert fs.pread(fd, 100, 0) == struct.pack(">qi", 1_700_000_000_000, 5)


def test_written_entries_are_not_written_twice_and_growth_goes_on_after_opening() -> None:
    fs = CrashFileSystem()
    index = grown(fs)
    index.write()
    operations = fs.operations
    index.write()
    assert fs.operations == operations
    again = offset_index(fs)
    again.grow()
    again.append(30, 500)
    again.sync()
    assert list(offset_index(fs.after_kill())) == [*ENTRIES, (30, 500)]


def test_an_index_is_full_at_its_size() -> None:
    index = offset_index(CrashFileSystem(), max_bytes=17)
    index.grow()
    index.append(1, 1)
    assert not index.is_full
    index.append(2, 2)
    assert index.is_full


def test_a_sealed_index_takes_no_entries() -> None:
    with pytest.raises(ValueError, match="sealed"):
        offset_index(CrashFileSystem()).append(1, 1)


@pytest.mark.parametrize(
    ("content", "sane"),
    [
        (b"", True),
        (struct.pack(">ii", 1, 0), True),
        (struct.pack(">iiii", 1, 0, 2, 50), True),
        (struct.pack(">iiii", 1, 0, 2, 50)[:-1], False),
        (struct.pack(">iiii", 1, 0, 2, 101), False),
        (struct.pack(">iiii", 1, 50, 2, 40), False),
        (struct.pack(">iiii", 2, 0, 1, 50), False),
        (bytes(16), False),
    ],
)
def test_what_a_crash_may_leave_is_told_from_a_good_index(content: bytes, sane: bool) -> None:
    fs = CrashFileSystem()
    fd = fs.open("/0.index", create=True)
    fs.pwritev(fd, [content], 0)
    assert offset_index(fs).is_sane(max_value=100) is sane


@pytest.mark.parametrize("cut_at", [400, 401])
def test_a_cut_index_is_synced_also_where_another_object_has_written_it(cut_at: int) -> None:
    """A truncation opens the file once more, and must sync it also where the cut drops no entry."""
    fs = CrashFileSystem()
    grown(fs).write()
    fs.fsync_dir("/")
    index = offset_index(fs)
    index.cut(cut_at)
    index.sync()
    assert list(offset_index(fs.after_cut())) == [entry for entry in ENTRIES if entry[1] < cut_at]


def test_clearing_drops_everything() -> None:
    fs = CrashFileSystem()
    index: IndexFile = grown(fs)
    index.write()
    index.clear()
    assert (len(index), index.last, index.floor(100)) == (0, None, None)
    assert fs.used_bytes == 0


@pytest.mark.parametrize("count", [1, SEARCHED_AT_ONCE, SEARCHED_AT_ONCE + 1, 5 * SEARCHED_AT_ONCE])
def test_a_sealed_index_of_any_size_finds_what_a_growing_one_does(count: int) -> None:
    index = OffsetIndex(CrashFileSystem(), "/0.index", 8 * count)
    index.clear()
    for slot in range(count):
        index.append(10 + 3 * slot, 100 * slot)
    keys, values = range(3 * count + 20), range(0, 100 * count + 100, 50)
    expected = [index.floor(key) for key in keys], [index.floor_value(value) for value in values]
    index.seal()
    assert ([index.floor(key) for key in keys], [index.floor_value(value) for value in values]) == expected
