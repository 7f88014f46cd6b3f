"""`<base offset>.txnindex`: the aborted transactions whose marker is in the segment (docs/formats/producers.md).

    file    := entry*                                       in the order of the markers
    entry   := version i16 = 0, producer id i64, first offset i64, last offset i64, last stable offset i64

The format is Kafka's. An entry goes from the transaction's first batch to its marker. The last stable offset is that of
the moment at which the marker came. It bounds a search: an entry whose last stable offset is at or above the end of a
range is the last one that can matter to that range. There is no file where nothing was aborted.

Entries are in memory until `write`. A crash may leave a file that is short or cut inside an entry; recovery finds the
markers again and replaces it. `append` belongs to the log's thread, `write`, `sync` and `entries` may run on another.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import NamedTuple

from millrace.fs import FileSystem, write_file_durably
from millrace_broker.storage.failures import is_disk_full

VERSION = 0
ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, from its first offset to that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment."""

    __slots__ = ("_fd", "_file_bytes", "_fs", "_is_name_synced", "_is_synced", "_lock", "_pending", "path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._lock = Lock()
        self._fd = fs.open(path) if fs.exists(path) else None
        self._file_bytes = 0 if self._fd is None else fs.size(self._fd)
        self._pending: list[AbortedTransaction] = []
        self._is_synced = self._is_name_synced = True

    def entries(self) -> list[AbortedTransaction]:
        """Returns all aborted transactions of the segment; raises OSError."""
        with self._lock:
            return self._in_file() + self._pending

    def is_sane(self, base_offset: int) -> bool:
        """Returns whether the file holds whole entries of this version whose markers are in the segment."""
        if self._file_bytes % ENTRY.size:
            return False
        data = b"" if self._fd is None else self._fs.pread(self._fd, self._file_bytes, 0)
        return all(version == VERSION and last >= base_offset for version, _, _, last, _ in ENTRY.iter_unpack(data))

    def append(self, transaction: AbortedTransaction) -> None:
        """Adds a transaction whose marker was appended to the segment, in memory until `write`."""
        with self._lock:
            self._pending.append(transaction)

    def write(self) -> None:
        """Writes what is only in memory to the file. Raises OSError."""
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
            self._pending.clear()

    def sync(self) -> None:
        """Writes, and blocks until file and name are on the disk. Raises OSError."""
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
        Raises OSError.
        """
        data = _packed(transactions)
        found = b"" if self._fd is None else self._fs.pread(self._fd, self._file_bytes, 0)
        if data == found:
            return True
        self.close()
        try:
            write_file_durably(self._fs, self.path, data)
        except OSError as error:
            if not is_disk_full(error):
                raise
            if self._fs.exists(self.path):
                self._fs.unlink(self.path)
            self._file_bytes, self._pending = 0, list(transactions)
            return False
        self._fd = self._fs.open(self.path)
        self._file_bytes = len(data)
        return True

    def close(self) -> None:
        """Closes the file; what was not written is lost, and there are no entries any more."""
        with self._lock:
            if self._fd is not None:
                self._fs.close(self._fd)
            self._fd = None
            self._pending.clear()

    def _in_file(self) -> list[AbortedTransaction]:
        if self._fd is None:
            return []
        data = self._fs.pread(self._fd, self._file_bytes, 0)
        return [AbortedTransaction(*fields) for _, *fields in ENTRY.iter_unpack(data)]


def find_aborted(indexes: Iterable[TransactionIndex], start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Returns the transactions that reach into the offsets from start up to end.

    `indexes` are those of the segments from the one that holds the start on. Raises OSError.
    """
    found: list[AbortedTransaction] = []
    for index in indexes:
        entries = index.entries()
        found += [each for each in entries if each.last_offset >= start_offset and each.first_offset < end_offset]
        if any(each.last_stable_offset >= end_offset for each in entries):
            break
    return found


def _packed(transactions: Sequence[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions)
