"""Which rows of a data file have a key: a small file beside each data file of a table with one row for each key.

    DIR/_keys/<name of the data file>.keys

    magic        8 bytes        "MILLKEYS"
    rows         8 bytes        of the data file, those that a deletion vector deletes, too
    entries      8 bytes        rows that have a key
    file         8 bytes        the hash of the data file's name: it is another for another file, and in another table
    directory    a block each   the least hash (8 bytes), the CRC-32C of the block (4 bytes)
    checksum     4 bytes        the CRC-32C of everything up to here
    blocks       BLOCK_ENTRIES entries each, the last one what is left:
                 their hashes (8 bytes each), rising, then their row numbers (4 bytes each)

Numbers are little-endian. A row costs 12 bytes, whatever its key is. Hashes are spread evenly over all numbers
(`keys.key_hashes`), so a search for few keys reads few blocks, and one for many reads the file once, a part at a time.

The index belongs to its data file as its rows do: written by the task that writes the file, never changed, removed with
it. It only spares work, and nothing depends on it: where it is missing, damaged, or of another file, the data file's
keys are read, and an index is written (`keys.lookup`). Other engines leave names alone that begin with an underscore,
so their vacuum takes no index of a file that stays.

What an index names is looked at before it counts: keys that share a hash are told apart there, and an index whose row
has another hash than it says is a wrong one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.records.checksum import crc32c
from millrace_pipelines.arrow import Column, Columns, Indices, binaries, combined
from millrace_pipelines.warehouse.keys.key_hashes import Hashes, hashes_of

MAGIC = b"MILLKEYS"
BLOCK_ENTRIES = 1 << 12
BLOCKS_AT_ONCE = 256
HEADER = struct.Struct("<8sQQQ")
CHECKSUM = struct.Struct("<I")
DIRECTORY = np.dtype([("least", "<u8"), ("crc", "<u4")])
HASH_BYTES = 8
ENTRY_BYTES = 12
MAX_ROWS = 1 << 32
GREATEST_HASH = np.uint64(2**64 - 1)

RowNumbers: TypeAlias = npt.NDArray[np.uint32]


class WrongIndexError(Exception):
    """An index is damaged, or is not of the data file beside it: it is to be made again from that file."""


class Entries(NamedTuple):
    """Hashes in rising order, and beside each the number of a row whose key has it."""

    hashes: Hashes
    rows: RowNumbers


class Matches(NamedTuple):
    """Pairs of a hash that was asked for, by its place among these, and a row that has it, by its number."""

    asked: Indices
    rows: Indices


class EntriesOfRows:
    """Takes the keys of a data file's rows, in their order, and makes the file's entries of them."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._hashes = [np.zeros(0, np.uint64)]
        self._numbers = [np.zeros(0, np.uint32)]
        self.rows = 0

    def add(self, keys: Column | Columns) -> None:
        """Adds the keys of the next rows."""
        block = binaries(combined(keys))
        has_key = block.is_valid().to_numpy(zero_copy_only=False)
        self._hashes.append(hashes_of(block, self._salt)[has_key])
        self._numbers.append((np.flatnonzero(has_key) + self.rows).astype(np.uint32))
        self.rows += len(block)

    def content(self, name: str) -> bytes:
        """Returns the content of the index of the file, which has this name; raises ValueError for MAX_ROWS or more."""
        if self.rows >= MAX_ROWS:
            raise ValueError(f"{name} has {self.rows} rows: an index counts up to {MAX_ROWS - 1}")
        hashes, numbers = np.concatenate(self._hashes), np.concatenate(self._numbers)
        order = np.argsort(hashes, kind="stable")
        entries = Entries(hashes[order], numbers[order])
        blocks = [_block(entries, start) for start in range(0, len(hashes), BLOCK_ENTRIES)]
        directory = np.zeros(len(blocks), DIRECTORY)
        directory["least"] = entries.hashes[::BLOCK_ENTRIES]
        directory["crc"] = [crc32c(block) for block in blocks]
        head = HEADER.pack(MAGIC, self.rows, len(hashes), _mark(name, self._salt)) + directory.tobytes()
        return b"".join((head, CHECKSUM.pack(crc32c(head)), *blocks))


def _block(entries: Entries, start: int) -> bytes:
    hashes, rows = (column[start : start + BLOCK_ENTRIES] for column in entries)
    return hashes.astype("<u8").tobytes() + rows.astype("<u4").tobytes()


def _mark(name: str, salt: bytes) -> int:
    return int(hashes_of(binaries(pa.array([name.encode()], pa.binary())), salt)[0])


class KeyIndex:
    """The index of the data file with a name, read from a file.

    Raises:
        WrongIndexError: It is damaged, or is another file's; a damage may show only when its part of the file is read.
    """

    def __init__(self, file: pa.NativeFile, name: str, salt: bytes) -> None:
        self._file = file
        self.rows, self.entries = self._head(_mark(name, salt))
        blocks = -(-self.entries // BLOCK_ENTRIES)
        self._blocks_at = HEADER.size + blocks * DIRECTORY.itemsize + CHECKSUM.size
        if file.size() != self._blocks_at + self.entries * ENTRY_BYTES:
            raise WrongIndexError(f"{file.size()} bytes are no index of {self.entries} entries")
        self._directory = self._read_directory()

    def _head(self, expected: int) -> tuple[int, int]:
        content = self._read_at(0, HEADER.size)
        if len(content) < HEADER.size:
            raise WrongIndexError("no whole header")
        magic, rows, entries, mark = HEADER.unpack(content)
        if magic != MAGIC or mark != expected:
            raise WrongIndexError("the header is no index's, or is that of another file")
        return rows, entries

    def _read_at(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)

    def _read_directory(self) -> npt.NDArray[np.void]:
        content = self._read_at(0, self._blocks_at)
        head, checksum = content[: -CHECKSUM.size], content[-CHECKSUM.size :]
        if CHECKSUM.unpack(checksum)[0] != crc32c(head):
            raise WrongIndexError("the directory fails its checksum")
        return np.frombuffer(head, DIRECTORY, offset=HEADER.size)

    def find(self, hashes: Hashes) -> Matches:
        """Returns the rows that have hashes; these are given in rising order."""
        asked, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for first, until in self._runs(hashes):
            entries = self._read(first, until)
            low, high = self._asked_within(hashes, entries)
            found = _matches(entries, hashes[low:high])
            asked.append(found.asked + low)
            rows.append(found.rows)
        return Matches(np.concatenate(asked), np.concatenate(rows))

    def everything(self) -> Iterator[Entries]:
        """Yields all entries, in parts."""
        blocks = len(self._directory)
        for first in range(0, blocks, BLOCKS_AT_ONCE):
            yield self._read(first, min(first + BLOCKS_AT_ONCE, blocks))

    def _asked_within(self, hashes: Hashes, entries: Entries) -> tuple[int, int]:
        low = np.searchsorted(hashes, entries.hashes[0], side="left")
        return int(low), int(np.searchsorted(hashes, entries.hashes[-1], side="right"))

    def _runs(self, hashes: Hashes) -> Iterator[tuple[int, int]]:
        """Yields ranges of blocks that may have the hashes, BLOCKS_AT_ONCE at most."""
        least = self._directory["least"]
        greatest = np.append(least[1:], GREATEST_HASH)[: len(least)]  # or less
        low, high = np.searchsorted(hashes, least, side="left"), np.searchsorted(hashes, greatest, side="right")
        wanted = np.flatnonzero(high > low)
        for run in np.split(wanted, np.flatnonzero(np.diff(wanted) > 1) + 1):
            for first in range(0, len(run), BLOCKS_AT_ONCE):
                yield int(run[first]), int(run[min(first + BLOCKS_AT_ONCE, len(run)) - 1]) + 1

    def _read(self, first: int, until: int) -> Entries:
        """Reads a range of blocks, and checks each of them."""
        begin, end = first * BLOCK_ENTRIES, min(until * BLOCK_ENTRIES, self.entries)
        content = memoryview(self._read_at(self._blocks_at + begin * ENTRY_BYTES, (end - begin) * ENTRY_BYTES))
        hashes, rows = [], []
        for number in range(first, until):
            block = content[: BLOCK_ENTRIES * ENTRY_BYTES]
            content = content[len(block) :]
            if crc32c(block) != self._directory["crc"][number]:
                raise WrongIndexError(f"block {number} fails its checksum")
            middle = len(block) // ENTRY_BYTES * HASH_BYTES
            hashes.append(np.frombuffer(block[:middle], "<u8"))
            rows.append(np.frombuffer(block[middle:], "<u4"))
        return Entries(np.concatenate(hashes), np.concatenate(rows))


def _matches(entries: Entries, hashes: Hashes) -> Matches:
    """Returns the rows of entries that have the hashes."""
    first = np.searchsorted(entries.hashes, hashes)
    hit = np.flatnonzero(entries.hashes[np.minimum(first, len(entries.hashes) - 1)] == hashes)
    first = first[hit]
    lengths = np.searchsorted(entries.hashes, hashes[hit], side="right") - first
    places = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    return Matches(np.repeat(hit, lengths), entries.rows[places].astype(np.int64))
