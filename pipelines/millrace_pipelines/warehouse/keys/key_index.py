"""Which rows of a data file have a key: a small file beside each data file of a table with one row for each key.

    DIR/_keys/<name of the data file>.keys

    magic        8 bytes        "MILLKEYS"
    rows         8 bytes        of the data file, those that a deletion vector deletes, too
    entries      8 bytes        rows that have a key
    table        8 bytes        the hash of the empty key: in another table it is another
    directory    a block each   the least hash (8 bytes), the CRC-32C of the block (4 bytes)
    checksum     4 bytes        the CRC-32C of everything up to here
    blocks       BLOCK_ENTRIES entries each, the last one what is left:
                 their hashes (8 bytes each), rising, then their row numbers (4 bytes each)

Numbers are little-endian. A row costs 12 bytes, whatever its key is. Hashes are spread evenly over all numbers
(`keys.key_hashes`), so a search for few keys reads few blocks, and one for many reads the file once, a part at a time.

The index belongs to its data file as its rows do: written by the task that writes the file, never changed, removed with
it. It only spares work, and nothing depends on it: where it is missing, damaged, or of another table, the data file's
keys are read, and an index is written (`indexed`). Other engines leave names alone that begin with an underscore, so
their vacuum takes no index of a file that stays.

What an index names is looked at before it counts: keys that share a hash are told apart there, and an index whose row
has another hash than it says is a wrong one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.records.checksum import crc32c
from millrace_pipelines.arrow import Indices, binaries
from millrace_pipelines.warehouse.keys.key_hashes import Hashes, hashes_of

INDEX_FOLDER = "_keys"
INDEX_SUFFIX = ".keys"
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


class Readable(Protocol):
    """A file of which parts can be read, such as a file of pyarrow's."""

    def size(self) -> int:
        """Returns its size in bytes."""

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Returns so many bytes from an offset on; fewer at the end of the file."""


class Entries(NamedTuple):
    """Hashes in rising order, and beside each the number of a row whose key has it."""

    hashes: Hashes
    rows: RowNumbers


class Matches(NamedTuple):
    """Pairs of a hash that was asked for, by its place among these, and a row that has it, by its number."""

    asked: Indices
    rows: Indices


def index_name(name: str) -> str:
    """Returns the name of the index of a data file."""
    return f"{INDEX_FOLDER}/{name}{INDEX_SUFFIX}"


def indexed_name(name: str) -> str | None:
    """Returns the name of the data file of which a file is the index; None for any other file."""
    if name.startswith(f"{INDEX_FOLDER}/") and name.endswith(INDEX_SUFFIX):
        return name.removeprefix(f"{INDEX_FOLDER}/").removesuffix(INDEX_SUFFIX)
    return None


def entries_of(keys: Iterable[pa.Array[pa.Scalar[pa.DataType]]], salt: bytes) -> tuple[Entries, int]:
    """Returns the entries of a data file, of whose rows these are the keys in order, and the number of its rows."""
    hashes, rows, first = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint32)], 0
    for block in keys:
        has_key = block.is_valid().to_numpy(zero_copy_only=False)
        hashes.append(hashes_of(binaries(block), salt)[has_key])
        rows.append((np.flatnonzero(has_key) + first).astype(np.uint32))
        first += len(block)
    found, numbers = np.concatenate(hashes), np.concatenate(rows)
    order = np.argsort(found, kind="stable")
    return Entries(found[order], numbers[order]), first


def written_index(entries: Entries, rows: int, salt: bytes) -> bytes:
    """Returns the content of the index of a data file with so many rows; raises ValueError for MAX_ROWS or more."""
    if rows >= MAX_ROWS:
        raise ValueError(f"{rows} rows: an index counts up to {MAX_ROWS - 1}")
    starts = range(0, len(entries.hashes), BLOCK_ENTRIES)
    blocks = [_block(entries, start) for start in starts]
    directory = np.zeros(len(blocks), DIRECTORY)
    directory["least"] = entries.hashes[::BLOCK_ENTRIES]
    directory["crc"] = [crc32c(block) for block in blocks]
    head = HEADER.pack(MAGIC, rows, len(entries.hashes), _table_mark(salt)) + directory.tobytes()
    return b"".join((head, CHECKSUM.pack(crc32c(head)), *blocks))


def _block(entries: Entries, start: int) -> bytes:
    hashes, rows = (column[start : start + BLOCK_ENTRIES] for column in entries)
    return hashes.astype("<u8").tobytes() + rows.astype("<u4").tobytes()


def _table_mark(salt: bytes) -> int:
    return int(hashes_of(binaries(pa.array([b""], pa.binary())), salt)[0])


class KeyIndex:
    """An index that is read from a file.

    Raises:
        WrongIndexError: The file is damaged, or is of another table; this may show only when a part of it is read.
    """

    def __init__(self, file: Readable, salt: bytes) -> None:
        self._file = file
        self.rows, self.entries = self._head(salt)
        blocks = -(-self.entries // BLOCK_ENTRIES)
        self._blocks_at = HEADER.size + blocks * DIRECTORY.itemsize + CHECKSUM.size
        if file.size() != self._blocks_at + self.entries * ENTRY_BYTES:
            raise WrongIndexError(f"{file.size()} bytes are no index of {self.entries} entries")
        self._directory = self._read_directory()

    def _head(self, salt: bytes) -> tuple[int, int]:
        content = self._file.read_at(HEADER.size, 0)
        if len(content) < HEADER.size:
            raise WrongIndexError("no whole header")
        magic, rows, entries, mark = HEADER.unpack(content)
        if magic != MAGIC or mark != _table_mark(salt):
            raise WrongIndexError("the header is no index's, or is of another table")
        return rows, entries

    def _read_directory(self) -> npt.NDArray[np.void]:
        content = self._file.read_at(self._blocks_at, 0)
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
        content = memoryview(self._file.read_at((end - begin) * ENTRY_BYTES, self._blocks_at + begin * ENTRY_BYTES))
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
