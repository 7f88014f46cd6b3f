"""Walking a file of batches, smaller and larger than what is read at a time."""

import random
from collections import deque

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.batch import HEADER_BYTES, MAGIC_POSITION
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage.batches.salvage import SearchBounds, batch_behind, next_batch
from millrace_broker.storage.batches.scan import (
    BATCHES_CHUNK_BYTES,
    HEADERS_CHUNK_BYTES,
    find_batch,
    scan_headers,
    walk_batches,
)
from millrace_support.crash_fs import CrashFileSystem

SIZES = [10, BATCHES_CHUNK_BYTES - 200, 100, 3 * BATCHES_CHUNK_BYTES, BATCHES_CHUNK_BYTES, 7, 50_000, 50_000]
BATCHES = [encode_batch([NewRecord(random.Random(size).randbytes(size))]) for size in SIZES]
POSITIONS = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]


def fs_with(content):
    fs = CrashFileSystem()
    fs.pwritev(fs.open("/log", create=True), [content], 0)
    return fs


def walked(content, end=None):
    fs = fs_with(content)
    fd = fs.open("/log")
    return [(position, holds) for position, _, holds in walk_batches(fs, fd, len(content) if end is None else end)]


def test_batches_of_every_size_are_walked():
    assert walked(b"".join(BATCHES)) == [(position, True) for position in POSITIONS]


@pytest.mark.parametrize("number", range(len(BATCHES)))
@pytest.mark.parametrize("where", [HEADER_BYTES, -1], ids=["first byte", "last byte"])
def test_a_wrong_byte_is_seen_in_its_batch_alone(number, where):
    content = bytearray(b"".join(BATCHES))
    content[POSITIONS[number] + where % len(BATCHES[number])] ^= 1
    assert walked(content) == [(position, position != POSITIONS[number]) for position in POSITIONS]


@pytest.mark.parametrize("number", range(len(BATCHES)))
@pytest.mark.parametrize("extra_bytes", [0, 1, HEADER_BYTES, HEADER_BYTES + 5])
def test_a_file_that_is_shorter_than_expected_has_the_batches_before_its_end(number, extra_bytes):
    content, found = b"".join(BATCHES), []
    fs = fs_with(content[: POSITIONS[number] + extra_bytes])
    walk = walk_batches(fs, fs.open("/log"), len(content))
    with pytest.raises(CorruptRecordError):
        deque((found.append(position) for position, _, _ in walk), maxlen=0)
    assert found == POSITIONS[:number]


@pytest.mark.parametrize("kept_bytes", [0, 5, 1000])
def test_the_search_behind_damage_ends_where_a_file_was_cut_short(kept_bytes):
    fs, reads = fs_with(bytes(kept_bytes)), []
    fs.pread = lambda fd, length, position, pread=fs.pread: reads.append(position) or pread(fd, length, position)
    bounds = SearchBounds(1 << 30, 0, 1 << 30)
    assert batch_behind(fs, fs.open("/log"), 0, bounds) is None
    assert next_batch(fs, fs.open("/log"), 0, bounds) == bounds.end
    assert len(reads) < 100


@pytest.mark.parametrize("missing_bytes", [1, 50_000, len(BATCHES[-1]) - 1, len(BATCHES[-1]) - HEADER_BYTES])
def test_a_batch_that_is_cut_short_ends_the_walk(missing_bytes):
    with pytest.raises(CorruptRecordError):
        walked(b"".join(BATCHES)[:-missing_bytes])


def test_a_file_that_is_shorter_than_it_was_is_no_batch():
    content = b"".join(BATCHES[:4])
    with pytest.raises(CorruptRecordError, match="the file ends at"):
        walked(content[:-100], end=len(content))


@pytest.mark.parametrize("number", range(1, len(BATCHES)))
def test_what_is_no_batch_is_named_by_its_position_in_the_file(number):
    content = bytearray(b"".join(BATCHES))
    content[POSITIONS[number] + MAGIC_POSITION] = 7
    with pytest.raises(CorruptRecordError, match=f"magic 7 at position {POSITIONS[number]} "):
        walked(content)


def many_batches():
    """Batches of one to three records, smaller and larger than a chunk of headers."""
    chance, offset, out = random.Random(7), 0, []
    for _ in range(60):
        count = chance.randint(1, 3)
        size = chance.choice([1, 100, 3000, HEADERS_CHUNK_BYTES])
        batch = bytearray(encode_batch([NewRecord(chance.randbytes(size))] * count))
        batch[:8] = offset.to_bytes(8, "big")
        out.append(bytes(batch))
        offset += count
    return b"".join(out), offset


def test_a_batch_is_found_where_the_headers_say():
    content, end_offset = many_batches()
    fs = CrashFileSystem()
    fd = fs.open("/log", create=True)
    fs.pwritev(fd, [content], 0)
    placed = list(scan_headers(fs, fd, 0, len(content)))
    for offset in range(end_offset):
        position, header = next(one for one in placed if one[1].last_offset >= offset)
        start = random.Random(offset).choice([at for at, _ in placed if at <= position])
        found = find_batch(fs, fd, start, len(content), offset)
        assert found is not None
        assert found[:3] == (position, header.size_bytes, header.next_offset)
        assert content[found.chunk_position :].startswith(found.chunk)
        assert found.chunk_position <= position < found.chunk_position + len(found.chunk)
    assert find_batch(fs, fd, 0, len(content), end_offset) is None
    last, _ = placed[-1]
    for cut in (lambda end: find_batch(fs, fd, 0, end, end_offset), lambda end: list(scan_headers(fs, fd, 0, end))):
        for missing_bytes in (1, placed[-1][1].size_bytes - 1):
            with pytest.raises(CorruptRecordError, match=f"at position {last} are no whole batches"):
                cut(len(content) - missing_bytes)
    with pytest.raises(CorruptRecordError, match="the file ends at"):
        find_batch(fs, fd, 0, len(content) + 100, end_offset)
    fs.pwritev(fd, [b"\7"], last + MAGIC_POSITION)
    with pytest.raises(CorruptRecordError, match=f"magic 7 at position {last} "):
        find_batch(fs, fd, 0, len(content), end_offset)
