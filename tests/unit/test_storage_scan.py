"""Walking a file of batches, smaller and larger than what is read at a time."""

import random

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.batch import HEADER_BYTES, MAGIC_POSITION
from millrace.records.record import NewRecord, encode_batch
from millrace.testing.crash_fs import CrashFileSystem
from millrace_broker.storage.scan import BATCHES_CHUNK_BYTES, walk_batches

SIZES = [10, BATCHES_CHUNK_BYTES - 200, 100, 3 * BATCHES_CHUNK_BYTES, BATCHES_CHUNK_BYTES, 7, 50_000, 50_000]
BATCHES = [encode_batch([NewRecord(random.Random(size).randbytes(size))]) for size in SIZES]
POSITIONS = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]


def walked(content, end=None):
    fs = CrashFileSystem()
    fd = fs.open("/log", create=True)
    fs.pwritev(fd, [content], 0)
    return [(position, holds) for position, _, holds in walk_batches(fs, fd, len(content) if end is None else end)]


def test_batches_of_every_size_are_walked():
    assert walked(b"".join(BATCHES)) == [(position, True) for position in POSITIONS]


@pytest.mark.parametrize("number", range(len(BATCHES)))
@pytest.mark.parametrize("where", [HEADER_BYTES, -1], ids=["first byte", "last byte"])
def test_a_wrong_byte_is_seen_in_its_batch_alone(number, where):
    content = bytearray(b"".join(BATCHES))
    content[POSITIONS[number] + where % len(BATCHES[number])] ^= 1
    assert walked(content) == [(position, position != POSITIONS[number]) for position in POSITIONS]


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
