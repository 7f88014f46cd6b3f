"""The indexes of a segment: by offset, by time, and of aborted transactions.

The offset index and the time index are sorted files of fixed-size entries (docs/formats/segment.md):

    entry  := key, value            big-endian, keys strictly increasing, values never decreasing
    file   := entry*

A *growing* index has its entries in memory as two columns, and in the file up to the last `write`. A *sealed* one is
complete in its file and is searched there without being loaded. The index of the active segment grows.

A crash may leave a file that is short, cut inside an entry, or filled with zeros. `is_sane` finds that out, and the
segment then rebuilds the index from the log. Nothing in an index is ever the only copy.

Columns grow on one thread only. `write`, `sync` and `seal` may run on another: they read what is there, and a search
keeps the columns that it began with.

`<base offset>.txnindex` has the aborted transactions whose marker is in the segment (docs/formats/producers.md):

    file    := entry*                                       in the order of the markers
    entry   := version i16 = 0, producer id i64, first offset i64, last offset i64, last stable offset i64

The format is Kafka's. An entry goes from the transaction's first batch to its marker. The last stable offset is that of
the moment at which the marker came. It bounds a search: an entry whose last stable offset is at or above the end of a
range is the last one that can matter to that range. There is no file where nothing was aborted.

Entries are in memory until `write`. A crash may leave a file that is short or cut inside an entry; recovery finds the
markers again and replaces it. `append` belongs to the log's thread, `write`, `sync` and `entries` may run on another.
An entry that is missing or wrong would have aborted records read, or committed ones skipped, and the format has no
checksum. So a file that is not as it was written is not read until it is replaced (`is_changed`), and `checksum` is
kept beside it (`range_files`).
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import ClassVar, NamedTuple

from millrace.config import MAX_INT
from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem, write_file_durably
from millrace.records.checksum import crc32c
from millrace_broker.storage.failures import is_disk_full

Entry = tuple[int, int]
Columns = tuple["array[int]", "array[int]"]

KEY, VALUE = 0, 1
SEARCHED_AT_ONCE = 512  # reading that many entries together costs less than one by one
POSITION_BITS = 32
POSITION_MASK = (1 << POSITION_BITS) - 1
ABORTED_VERSION = 0
ABORTED_ENTRY = struct.Struct(">hqqqq")


class IndexFile:
    """An index file of (key, value) entries, both increasing; a subclass says how an entry is packed.

    Entries stay in memory while the index grows, and are searched in the file once it is sealed.
    """

    __slots__ = (
        "_columns", "_fd", "_file_bytes", "_fs", "_is_ordered", "_is_synced", "_last", "_max_entries", "_written",
        "path",
    )  # fmt: skip

    ENTRY: ClassVar[struct.Struct]
    TYPE_CODES: ClassVar[tuple[str, str]]

    def __init__(self, fs: FileSystem, path: str, max_bytes: int) -> None:
        self.path = path
        self._fs = fs
        self._max_entries = max_bytes // self.ENTRY.size
        self._columns: Columns | None = None
        self._is_synced = True
        self._fd = fs.open(path, create=True)
        try:
            self._file_bytes = fs.size(self._fd)
            self._written = self._file_bytes // self.ENTRY.size
            self._last, self._is_ordered = self._end_in_file()
        except BaseException:
            fs.close(self._fd)
            raise

    def __len__(self) -> int:
        columns = self._columns
        return self._written if columns is None else len(columns[VALUE])

    def __iter__(self) -> Iterator[Entry]:
        """Iterates over the entries in order, those that were there when the iteration began."""
        columns = self._columns
        if columns is None:
            entries = self._fs.pread(self._fd, self._written * self.ENTRY.size, 0)
            return self.ENTRY.iter_unpack(entries[: len(entries) // self.ENTRY.size * self.ENTRY.size])
        return iter(tuple(zip(*columns, strict=False)))

    @property
    def last(self) -> Entry | None:
        """The newest entry; None if there are none."""
        columns = self._columns
        if columns is None:
            return self._last
        keys, values = columns
        return (keys[-1], values[-1]) if values else None

    @property
    def is_sealed(self) -> bool:
        """Whether all entries are in the file, none is in memory, and none can be appended."""
        return self._columns is None

    @property
    def is_full(self) -> bool:
        """Whether `segment.index.bytes` leaves no room for another entry."""
        columns = self._columns
        return (self._written if columns is None else len(columns[VALUE])) >= self._max_entries

    @property
    def room(self) -> int:
        """The number of entries that may still be appended."""
        columns = self._columns
        return self._max_entries - (self._written if columns is None else len(columns[VALUE]))

    def is_sane(self, max_value: int) -> bool:
        """Returns whether the file holds whole entries that increase, with values up to `max_value`.

        Only the first and the last entry are looked at: bytes between them were synced before they were relied on.
        """
        if self._file_bytes % self.ENTRY.size:
            return False
        return self._last is None or (self._is_ordered and self._last[VALUE] <= max_value)

    def grow(self) -> None:
        """Loads the file's entries into memory, so that more can be appended."""
        entries = list(self)
        self._columns = self._empty_columns()
        for column, values in zip(self._columns, zip(*entries, strict=True), strict=False):
            column.extend(values)

    def withdraw(self) -> None:
        """Empties the file, synced, but keeps the entries in memory, to be written again. Raises OSError."""
        self.grow()
        self._fs.truncate(self._fd, 0)
        self._file_bytes = self._written = 0
        self._fs.fsync(self._fd)

    def cut(self, value: int) -> None:
        """Drops the entries with this value or a larger one, and lets others be appended. Raises OSError.

        What is left is to be synced, too: whoever had the file open before may have written it, and not synced it.
        """
        self.grow()
        assert self._columns is not None
        self._is_synced = False
        kept = bisect_left(self._columns[VALUE], value)
        for column in self._columns:
            del column[kept:]
        if kept < self._written:
            self._fs.truncate(self._fd, kept * self.ENTRY.size)
            self._written, self._file_bytes = kept, kept * self.ENTRY.size
        self._last = self.last

    def clear(self) -> None:
        """Drops all entries, and lets others be appended."""
        if self._file_bytes:
            self._fs.truncate(self._fd, 0)
        self._is_synced = False
        self._file_bytes = self._written = 0
        self._last = None
        self._columns = self._empty_columns()

    def append(self, key: int, value: int) -> bool:
        """Adds an entry in memory, above the last; returns whether the index is full. `write` puts it into the file."""
        columns = self._columns
        if columns is None:
            raise ValueError(f"{self.path} is sealed")
        keys, values = columns
        keys.append(key)
        values.append(value)
        return len(values) >= self._max_entries

    def floor(self, key: int) -> Entry | None:
        """Returns the last entry whose key is not above `key`; None without one. Raises CorruptRecordError."""
        return self._floor(KEY, key)

    def floor_value(self, value: int) -> Entry | None:
        """Returns the last entry whose value is not above `value`; None without one. Raises CorruptRecordError."""
        return self._floor(VALUE, value)

    def write(self) -> None:
        """Writes the entries that are only in memory to the file, all or none. Raises OSError."""
        columns = self._columns
        if columns is None:
            return
        start, end = self._written, len(columns[VALUE])
        if start == end:
            return
        data = b"".join(map(self.ENTRY.pack, columns[KEY][start:end], columns[VALUE][start:end]))
        try:
            self._fs.pwritev(self._fd, [data], start * self.ENTRY.size)
        except OSError:
            self._fs.truncate(self._fd, self._file_bytes)
            raise
        self._is_synced = False
        self._written, self._file_bytes = end, end * self.ENTRY.size

    def sync(self) -> None:
        """Writes all entries to the file, and blocks until that is on the disk. Raises OSError."""
        self.write()
        if not self._is_synced:
            self._is_synced = True
            try:
                self._fs.fsync(self._fd)
            except OSError:
                self._is_synced = False
                raise

    def seal(self) -> None:
        """Writes all entries to the file and frees their memory; none can be appended any more. Raises OSError."""
        self.write()
        self._last = self.last
        self._columns = None

    def close(self) -> None:
        """Closes the file; what was not written is lost."""
        self._fs.close(self._fd)

    def _empty_columns(self) -> Columns:
        key_code, value_code = self.TYPE_CODES
        return array(key_code), array(value_code)

    def _floor(self, field: int, target: int) -> Entry | None:
        columns = self._columns
        if columns is not None:
            slot = bisect_right(columns[field], target) - 1
            return (columns[KEY][slot], columns[VALUE][slot]) if slot >= 0 else None
        if self._last is None or target >= self._last[field]:
            return self._last
        return self._floor_in_file(field, target)

    def _floor_in_file(self, field: int, target: int) -> Entry | None:
        """Returns the last entry in the file whose field is not above the target, by binary search."""
        start, end = 0, self._written
        while end - start > SEARCHED_AT_ONCE:
            middle = (start + end) // 2
            if self._entry_in_file(middle)[field] > target:
                end = middle
            else:
                start = middle
        entries = self._packed(start, end)
        slot = self._last_slot(entries, field, target)
        if slot < 0:
            return None
        key, value = self.ENTRY.unpack_from(entries, slot * self.ENTRY.size)
        return key, value

    def _last_slot(self, entries: bytes, field: int, target: int) -> int:
        """Returns the number of the last of these packed entries whose field is not above the target; -1 for none."""
        unpack, size_bytes = self.ENTRY.unpack_from, self.ENTRY.size
        slots = range(len(entries) // size_bytes)
        return bisect_right(slots, target, key=lambda slot: unpack(entries, slot * size_bytes)[field]) - 1

    def _end_in_file(self) -> tuple[Entry | None, bool]:
        """Returns the file's last entry, None without one, and whether it is larger than the first."""
        if not self._written:
            return None, True
        if self._written <= SEARCHED_AT_ONCE:
            entries = self._fs.pread(self._fd, self._written * self.ENTRY.size, 0)
            first_key, first_value = self.ENTRY.unpack_from(entries)
            last_key, last_value = self.ENTRY.unpack_from(entries, len(entries) - self.ENTRY.size)
        else:
            (first_key, first_value), (last_key, last_value) = map(self._entry_in_file, (0, self._written - 1))
        is_ordered = (self._written == 1 or first_key < last_key) and 0 <= first_value <= last_value
        return (last_key, last_value), is_ordered

    def _entry_in_file(self, slot: int) -> Entry:
        key, value = self.ENTRY.unpack(self._packed(slot, slot + 1))
        return key, value

    def _packed(self, start: int, end: int) -> bytes:
        """Returns the packed entries from slot `start` to `end`; raises CorruptRecordError where the file has fewer."""
        size_bytes = self.ENTRY.size
        entries = self._fs.pread(self._fd, (end - start) * size_bytes, start * size_bytes)
        if len(entries) < (end - start) * size_bytes:
            raise CorruptRecordError(f"{self.path} ends before its entry {end}")
        return entries


class OffsetIndex(IndexFile):
    """`<base offset>.index`: entries (relative offset i32, position i32), the positions of offsets in the segment.

    The offset, relative to the segment's base offset, is that of the *last* record of the batch that begins at
    `position`. There is one entry about every `index.interval.bytes`, so from `floor(offset)` a reader walks that far
    at most. The last entry of a closed segment is its last batch.
    """

    __slots__ = ()

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">ii")
    TYPE_CODES: ClassVar[tuple[str, str]] = ("i", "i")

    def _last_slot(self, entries: bytes, field: int, target: int) -> int:
        """Returns the same as the base class, comparing packed entries as 64-bit numbers, which sort as offsets do."""
        if field != KEY:
            return super()._last_slot(entries, field, target)
        numbers = array("Q", entries)
        if sys.byteorder == "little":
            numbers.byteswap()
        return bisect_right(numbers, (target << POSITION_BITS) | POSITION_MASK) - 1


class TimeIndex(IndexFile):
    """`<base offset>.timeindex`: entries (timestamp i64 in ms, relative offset i32), the largest timestamps so far.

    Up to that offset, and at it, no record of the segment is newer than `timestamp`; records that are newer come later.
    The last entry of a closed segment has the largest timestamp in the segment.
    """

    __slots__ = ()

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">qi")
    TYPE_CODES: ClassVar[tuple[str, str]] = ("q", "i")


def end_named(offsets: OffsetIndex, times: TimeIndex) -> int:
    """Returns the relative offset behind the last one that two indexes name, 0 without any.

    An index that is not whole names none. Positions may lie behind the end of a file that was cut.
    """
    by_offset = offsets.last if offsets.is_sane(MAX_INT) else None
    by_time = times.last if times.is_sane(MAX_INT) else None
    return 1 + max(-1 if by_offset is None else by_offset[KEY], -1 if by_time is None else by_time[VALUE])


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its producer, its first offset and that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class FileChecksum(NamedTuple):
    """The size of a file and the CRC-32C of all its bytes, by which a changed file is recognized."""

    size_bytes: int
    crc: int


class TransactionIndex:
    """The aborted transactions of one segment, in its `.txnindex` file; those of one that `is_changed` are not read."""

    __slots__ = (
        "_crc", "_fd", "_file_bytes", "_fs", "_is_name_synced", "_is_synced", "_lock", "_pending", "is_changed", "path",
    )  # fmt: skip

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self.is_changed = False
        self._fs = fs
        self._lock = Lock()
        self._fd = fs.open(path) if fs.exists(path) else None
        self._file_bytes = self._crc = 0
        self._pending: list[AbortedTransaction] = []
        self._is_synced = self._is_name_synced = True
        if self._fd is not None:
            self._note_what_is_there(self._fd)

    def _note_what_is_there(self, fd: int) -> None:
        try:
            self._file_bytes = self._fs.size(fd)
            self._crc = crc32c(self._fs.pread(fd, self._file_bytes, 0))
        except BaseException:
            self._fs.close(fd)
            raise

    @property
    def checksum(self) -> FileChecksum | None:
        """What the file has by what was written; None where it has no entry."""
        return FileChecksum(self._file_bytes, self._crc) if self._file_bytes else None

    def entries(self) -> list[AbortedTransaction]:
        """Returns all aborted transactions of the segment. Raises CorruptRecordError or OSError."""
        with self._lock:
            return self._in_file() + self._pending

    def is_sane(self, base_offset: int) -> bool:
        """Returns whether the file holds whole entries of this version whose markers are in the segment."""
        data = b"" if self._fd is None else self._fs.pread(self._fd, self._file_bytes, 0)
        if len(data) != self._file_bytes or len(data) % ABORTED_ENTRY.size:
            return False
        return all(
            version == ABORTED_VERSION and last >= base_offset
            for version, _, _, last, _ in ABORTED_ENTRY.iter_unpack(data)
        )

    def append(self, transaction: AbortedTransaction) -> None:
        """Adds a transaction whose marker was appended to the segment, in memory until `write`."""
        with self._lock:
            self._pending.append(transaction)

    def write(self) -> None:
        """Writes the transactions that are only in memory to the file. Raises OSError."""
        with self._lock:
            if not self._pending:
                return
            if self._fd is None:
                self._fd = self._fs.open(self.path, create=True)
                self._is_name_synced = False
            self._is_synced = False
            data = _packed(self._pending)
            self._fs.pwritev(self._fd, [data], self._file_bytes)
            self._file_bytes += len(data)
            self._crc = crc32c(data, self._crc)
            self._pending.clear()

    def sync(self) -> None:
        """Writes what is only in memory, and blocks until the file and its name are on the disk. Raises OSError."""
        self.write()
        if self._fd is not None and not self._is_synced:
            self._fs.fsync(self._fd)
            self._is_synced = True
        if not self._is_name_synced:
            self._fs.fsync_dir(os.path.dirname(self.path))
            self._is_name_synced = True

    def replace(self, transactions: Sequence[AbortedTransaction]) -> bool:
        """Replaces the file's content by what a recovery has found; a crash leaves the old content or the new.

        Returns false where the disk is full: there is no file then, and the entries wait in memory for `write`.
        Nothing is appended meanwhile. Raises OSError.
        """
        data = _packed(transactions)
        found = b"" if self._fd is None else self._fs.pread(self._fd, self._file_bytes, 0)
        if data == found:
            self._take(self._fd, data, [])
            return True
        try:
            write_file_durably(self._fs, self.path, data)
        except OSError as error:
            if not is_disk_full(error):
                raise
            if self._fs.exists(self.path):
                self._fs.unlink(self.path)
            self._take(None, b"", transactions)
            return False
        self._take(self._fs.open(self.path), data, [])
        return True

    def _take(self, fd: int | None, data: bytes, pending: Sequence[AbortedTransaction]) -> None:
        """Goes on with another file, which has this content; readers never see a part of it."""
        with self._lock:
            if self._fd is not None and self._fd != fd:
                self._fs.close(self._fd)
            self._fd, self._file_bytes, self._crc = fd, len(data), crc32c(data)
            self._pending, self.is_changed = list(pending), False

    def close(self) -> None:
        """Closes the file; what was not written is lost, and there are no entries any more."""
        with self._lock:
            if self._fd is not None:
                self._fs.close(self._fd)
            self._fd = None
            self._pending.clear()

    def _in_file(self) -> list[AbortedTransaction]:
        data = b"" if self._fd is None else self._fs.pread(self._fd, self._file_bytes, 0)
        self.is_changed |= (len(data), crc32c(data)) != (self._file_bytes, self._crc)
        if self.is_changed:
            raise CorruptRecordError(f"{self.path} is not as it was written")
        return [AbortedTransaction(*fields) for _, *fields in ABORTED_ENTRY.iter_unpack(data)]


def find_aborted(indexes: Iterable[TransactionIndex], start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Returns the aborted transactions with offsets from `start_offset` to before `end_offset`.

    `indexes` are those of the segments from the one that holds `start_offset` on. Raises CorruptRecordError or OSError.
    """
    found: list[AbortedTransaction] = []
    for index in indexes:
        entries = index.entries()
        found += [each for each in entries if each.last_offset >= start_offset and each.first_offset < end_offset]
        if any(each.last_stable_offset >= end_offset for each in entries):
            break
    return found


def _packed(transactions: Sequence[AbortedTransaction]) -> bytes:
    return b"".join(ABORTED_ENTRY.pack(ABORTED_VERSION, *transaction) for transaction in transactions)
