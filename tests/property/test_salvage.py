"""Damage of any kind in a segment: what is valid is found, what is not is named, nothing else is raised."""

import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st

from millrace.records.compression import Codec
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage.batches.salvage import Damage, ValidBatch, examine, segment_bounds
from millrace_broker.storage.recovery.offline_logs import check_segment, repair
from millrace_support.crash_fs import CrashFileSystem

BASE_OFFSET = 2**32 - 3  # offsets that differ in more than their low bytes
PATH = f"/t-0/{BASE_OFFSET:020d}.log"

BATCHES = []
for _number in range(8):
    _records = [NewRecord(b"value-%d" % _number * (_number + 1), b"\x00\x02" * _number)] * (_number + 1)
    _offset = BATCHES[-1][1] + 1 if BATCHES else BASE_OFFSET
    _batch = encode_batch(_records, base_offset=_offset, codec=Codec(_number % len(Codec)))
    BATCHES.append((_batch, _offset + _number))


def spoiled(batch, missing_bytes):
    """A batch that is cut short, with a byte behind it that what follows can't complete it."""
    return batch[:-missing_bytes] + bytes([batch[-missing_bytes] ^ 0x55])


zeros = st.integers(1, 300).map(bytes)
cut_batches = st.tuples(st.sampled_from(BATCHES), st.integers(1, 60)).map(lambda cut: spoiled(cut[0][0], cut[1]))
garbage = st.one_of(st.binary(min_size=1, max_size=300), zeros, st.just(b"\x00" * 16 + b"\x02" * 200), cut_batches)
pieces = st.lists(st.one_of(st.sampled_from(range(len(BATCHES))), garbage), max_size=20)


def holding(content):
    fs = CrashFileSystem()
    fs.mkdir("/t-0")
    fd = fs.open(PATH, create=True)
    fs.pwritev(fd, [content], 0)
    fs.fsync(fd)
    fs.fsync_dir("/t-0")
    fs.fsync_dir("/")
    return fs, fd


def examined(fs, fd):
    return list(examine(fs, fd, 0, segment_bounds(fs.size(fd), BASE_OFFSET)))


def parts_of(content):
    return examined(*holding(content))


def flipped(content, position, bit):
    return content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :]


def whole():
    return b"".join(batch for batch, _ in BATCHES)


@given(st.lists(st.tuples(st.booleans(), st.lists(garbage, max_size=2)), min_size=8, max_size=8))
def test_batches_in_order_are_found_whatever_lies_between(plan):
    content, wanted = b"", []
    for (batch, last_offset), (there, rubbish) in zip(BATCHES, plan, strict=True):
        content += b"".join(rubbish)
        if there:
            wanted.append((len(content), len(batch), last_offset))
            content += batch
    parts = parts_of(content)
    assert [part.position for part in parts] == [sum(one.size_bytes for one in parts[:n]) for n in range(len(parts))]
    assert sum(part.size_bytes for part in parts) == len(content)
    found = [(part.position, part.size_bytes, part.last_offset) for part in parts if isinstance(part, ValidBatch)]
    assert found == wanted


@given(st.binary(max_size=2000))
def test_bytes_of_any_kind_are_damage(content):
    parts = parts_of(content)
    assert all(isinstance(part, Damage) and part.reason for part in parts)
    assert sum(part.size_bytes for part in parts) == len(content)


@given(st.integers(0, len(whole()) - 1), st.integers(0, 7))
def test_a_flipped_bit_costs_its_own_batch_at_most(position, bit):
    """Also where it lies in a base offset, which no CRC covers."""
    found = {part.last_offset for part in parts_of(flipped(whole(), position, bit)) if isinstance(part, ValidBatch)}
    assert len({last for _, last in BATCHES} - found) <= 1


@given(pieces)
def test_a_repaired_segment_holds_the_valid_batches_and_no_damage(pieces):
    content = b"".join(BATCHES[piece][0] if isinstance(piece, int) else piece for piece in pieces)
    fs, fd = holding(content)
    valid = [part for part in examined(fs, fd) if isinstance(part, ValidBatch)]
    done = next(iter(repair(fs, [PATH])), None)
    kept = b"".join(content[part.position : part.position + part.size_bytes] for part in valid)
    assert read(fs, PATH) == kept
    assert check_segment(fs, PATH).findings == ()
    assert (done is None) == (kept == content)
    if done is not None:
        assert read(fs.after_cut(), done.original) == content
        assert done.dropped_bytes == len(content) - len(kept)


def test_messages_of_the_old_formats_are_no_damage():
    old = b"".join(message(BASE_OFFSET + number, number % 2) for number in range(6))
    parts = parts_of(old[:70] + b"\x00\x01\x02" * 30 + old[70:])
    assert [type(part) for part in parts].count(ValidBatch) >= 4
    assert parts_of(old) == [part for part in parts_of(old) if isinstance(part, ValidBatch)]


def message(offset, magic):
    timestamp = struct.pack(">q", 1_700_000_000_000) if magic else b""
    body = bytes([magic, 0]) + timestamp + struct.pack(">i3si5s", 3, b"key", 5, b"value")
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def read(fs, path):
    fd = fs.open(path)
    try:
        return fs.pread(fd, fs.size(fd), 0)
    finally:
        fs.close(fd)
