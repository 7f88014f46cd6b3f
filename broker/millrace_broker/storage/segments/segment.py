"""One segment of a log: `<base offset>.log` with its indexes (docs/formats/segment.md).

    .log  := batch*      RecordBatch v2, offsets increasing, no gap between the bytes

Only the active segment, the last one of its log, is appended to. A crash may leave a bad tail, and an index that is
short or missing. `recover` walks the batches, cuts the tail and rebuilds the indexes; `load_closed` and `load_active`
trust what a clean shutdown or a sync has left. Synced batches that are damaged are set aside (`damage`).

Descriptors stay open until the log *and* the last other user have let go of the segment (`retain`, `release`), so a
sync or a check on another thread never meets a closed file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from threading import Lock

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError, RecordError
from millrace.fs import Buffer, FileSystem
from millrace.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_PRODUCER_ID, NO_TIMESTAMP, read_header
from millrace_broker.storage.batches.salvage import SearchBounds
from millrace_broker.storage.batches.scan import (
    MAX_RELATIVE_OFFSET,
    FoundBatch,
    Located,
    Placed,
    find_batch,
    offset_at,
    scan_headers,
)
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import is_disk_full
from millrace_broker.storage.filenames import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from millrace_broker.storage.segments.damage import (
    NOTHING_SYNCED,
    AllowedGaps,
    DamagedRange,
    Headers,
    RepairedRange,
    Synced,
    WalkedFrom,
    covering,
    damaged_from,
    intact_bytes,
    is_synced,
    undamaged_around,
    valid_batches,
    with_added,
)
from millrace_broker.storage.segments.indexes import OffsetIndex, TimeIndex, TransactionIndex, end_named

MAX_RESUME_POSITIONS = 64
NOTHING_INDEXED = NO_TIMESTAMP - 1


class LogSegment:
    """A file with the batches of a log from `base_offset` on, and the index files over it."""

    __slots__ = (
        "__weakref__", "_file_suffix", "_fs", "_has_reserve", "_indexed_position", "_indexed_timestamp",
        "_interval_bytes", "_is_synced", "_last", "_resume_positions", "_stem", "_users", "_users_lock", "base_offset",
        "damage", "fd", "first_timestamp", "has_lost_its_name", "has_producer_ids", "is_index_full", "is_newest_known",
        "led", "max_timestamp", "max_timestamp_offset", "next_offset", "offset_index", "path", "repaired", "size_bytes",
        "time_index", "transaction_index", "trusts_index", "was_recovered",
    )  # fmt: skip

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, file_suffix: str = ""
    ) -> None:
        """Opens the files, creating them if need be; `file_suffix` such as `.cleaned` means it is not in use yet."""
        self.base_offset = base_offset
        self.next_offset = base_offset
        self._file_suffix = file_suffix
        self._stem = os.path.join(directory, segment_file_name(base_offset, ""))
        self.path = self._file(LOG_SUFFIX)
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.is_newest_known = True  # unless a start has `max_timestamp` of the time index alone (`time_entries`)
        self.is_index_full = False
        self.has_lost_its_name = False  # as long as the scrubber has not found the file gone under an open descriptor
        self.damage: tuple[DamagedRange, ...] = ()
        self.repaired: tuple[RepairedRange, ...] = ()
        self.led: Headers = []  # the first two batches of each leader, where a recovery has walked it
        self.trusts_index = True  # until a read finds that the log contradicts it
        self.was_recovered = False
        self.has_producer_ids = True  # or control batches, as long as no recovery has found that there are none
        self._fs = fs
        self._interval_bytes = config.index_interval_bytes
        self._indexed_position, self._last = 0, (base_offset, 0)
        self._indexed_timestamp = NOTHING_INDEXED
        self._resume_positions: dict[int, int] = {}
        self._has_reserve = False
        self._is_synced = True  # recovery takes care of what was written before the segment was opened
        self._users = 1
        self._users_lock = Lock()
        opened: list[Callable[[], None]] = []
        try:
            self.fd = fs.open(self.path, create=True)
            opened.append(lambda: fs.close(self.fd))
            self.size_bytes = fs.size(self.fd)
            self.offset_index = OffsetIndex(fs, self._file(OFFSET_INDEX_SUFFIX), config.segment_index_bytes)
            opened.append(self.offset_index.close)
            self.time_index = TimeIndex(fs, self._file(TIME_INDEX_SUFFIX), config.segment_index_bytes)
            opened.append(self.time_index.close)
            self.transaction_index = TransactionIndex(fs, self._file(TRANSACTION_INDEX_SUFFIX))
        except BaseException:
            for close in opened:
                close()
            raise

    # Appending: the log's own thread, on the active segment.

    def write(self, buffers: Sequence[Buffer], size_bytes: int) -> int:
        """Appends bytes to the file and returns their position; call `add` for each batch then. Raises OSError."""
        position = self.size_bytes
        self._fs.pwritev(self.fd, buffers, position)
        self._is_synced = False
        self.size_bytes = position + size_bytes
        return position

    def reserve(self, size_bytes: int) -> None:
        """Reserves disk space for a segment of this size; `seal` gives back what was not used. Raises OSError."""
        self._fs.reserve(self.fd, size_bytes)
        self._has_reserve = True

    def undo_write(self) -> None:
        """Cuts the file to its size before a failed `write`. Raises OSError."""
        self._fs.truncate(self.fd, self.size_bytes)

    def add(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Moves the segment's end behind a written batch; adds index entries every `index.interval.bytes`."""
        self.next_offset = last_offset + 1
        self._last = last_offset, position
        if position == 0:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position - self._indexed_position > self._interval_bytes:
            if self.offset_index.append(last_offset - self.base_offset, position):
                self.is_index_full = True
            if self.max_timestamp > self._indexed_timestamp:
                self._index_max_timestamp()
            self._indexed_position = position

    @property
    def index_room(self) -> int:
        """The number of further batches that are sure to find room in the indexes."""
        return min(self.offset_index.room, self.time_index.room)

    def finish_times(self) -> None:
        """Adds the largest timestamp, if it is known, to the time index, as its last entry for now."""
        if self.size_bytes and self.is_newest_known and self.max_timestamp > self._indexed_timestamp:
            self._index_max_timestamp()

    def finish(self) -> None:
        """Adds the last entries to the indexes of a segment that takes no more batches, which tell where it ends."""
        self.finish_times()
        last_offset, position = self._last
        if position > self._indexed_position and not self.offset_index.is_full:
            self.offset_index.append(last_offset - self.base_offset, position)
            self._indexed_position = position

    def write_indexes(self) -> bool:
        """Writes index entries that are only in memory to their files; returns false where the disk is full."""
        try:
            self.offset_index.write()
            self.time_index.write()
            self.transaction_index.write()
        except OSError as error:
            if not is_disk_full(error):
                raise
            return False
        return True

    def sync_batches(self) -> None:
        """Blocks until the batches, without the indexes, are on the disk; what is written meanwhile may not be."""
        if not self._is_synced:
            self._is_synced = True
            try:
                self._fs.fsync(self.fd)
            except OSError:
                self._is_synced = False
                raise

    def sync(self) -> None:
        """Blocks until batches and index entries are on the disk. File names are synced with the log's folder."""
        self.sync_batches()
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()

    def seal(self) -> None:
        """Frees the indexes' memory and the reserved disk space that was not used, after `finish` and `sync`."""
        self.offset_index.seal()
        self.time_index.seal()
        if self._has_reserve:
            self._fs.truncate(self.fd, self.size_bytes)
            self._has_reserve = False

    def unseal(self) -> None:
        """Undoes `seal` where the transaction index finds no room: the next start then rebuilds the indexes."""
        if self.is_sealed:
            self.time_index.withdraw()

    @property
    def is_sealed(self) -> bool:
        """Whether the segment takes no more batches and all of it was synced."""
        return self.offset_index.is_sealed and self.time_index.is_sealed

    def locate(self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool) -> Located | None:
        """Returns where the whole batches are that `Log.read` is to return, from the one that holds `offset` on.

        None where no batch below `end_offset` holds it; size 0 where the first one is too large. Raises RecordError.
        """
        end_position = self.position_of(end_offset)
        found = self.find(offset, end_position)
        if found is None:
            return None
        start, first_bytes, first_end, chunk, chunk_position, _, _ = found
        if start + max_bytes >= end_position:
            end, next_offset = end_position, end_offset
        elif first_bytes <= max_bytes:
            end, next_offset = self._last_boundary(start, start + max_bytes)
        elif at_least_one:
            end, next_offset = start + first_bytes, first_end
        else:
            return Located(start, 0, b"")
        self._remember(next_offset, end)
        is_read = end - chunk_position <= len(chunk)
        return Located(start, end - start, chunk[start - chunk_position : end - chunk_position] if is_read else None)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Returns the bytes at a position. Raises OSError."""
        return self._fs.pread(self.fd, size_bytes, position)

    def descriptor(self) -> AbstractContextManager[int]:
        """Gives the file's descriptor within the context."""
        return self._fs.descriptor(self.fd)

    def find(self, offset: int, end_position: int | None = None) -> FoundBatch | None:
        """Returns the first batch whose last offset is `offset` or above; None without one. Raises RecordError.

        A batch that reaches over the next one is an error. That is checked where the next one's offset is at hand, and
        where offsets are left out.
        """
        end = self.size_bytes if end_position is None else end_position
        start = self._resume_positions.get(offset)
        if start is None:
            floor = self.offset_index.floor(offset - self.base_offset) if self.trusts_index else None
            start = floor[1] if floor is not None else 0
        if self.damage:
            first, last = undamaged_around(self.path, self.damage, offset, self.size_bytes)
            start, end = max(start, first), min(end, last)
        found = find_batch(self._fs, self.fd, start, end, offset)
        if found is None:
            return None
        leaves_out, following = found.base_offset > offset, found.following_offset
        if following is None and (leaves_out or found.next_offset > self.next_offset):
            following = offset_at(self._fs, self.fd, found.end) if found.end < end else self.next_offset
        if following is not None and following < found.next_offset:
            raise CorruptRecordError(f"offset {following} behind a batch that ends at {found.next_offset}")
        if leaves_out and found.position == start and self.trusts_index and start > 0:
            raise CorruptRecordError(f"an index entry leads offset {offset} to {found.base_offset}")
        return found

    def headers(self, position: int) -> Iterator[Placed]:
        """Yields (position, header) of undamaged batches from `position` on. Raises RecordError or OSError."""
        intact = intact_bytes(self.damage, position, self.size_bytes)
        return chain.from_iterable(scan_headers(self._fs, self.fd, start, end) for start, end in intact)

    def position_of(self, offset: int) -> int:
        """Returns the position of the batch or damaged range with `offset`, or of the next one, or the end."""
        if offset >= self.next_offset:
            return self.size_bytes
        if (damaged := covering(self.damage, offset)) is not None:
            return damaged.position
        return self.size_bytes if (found := self.find(offset)) is None else found.position

    def _last_boundary(self, start: int, limit: int) -> tuple[int, int]:
        """Returns (position, base offset) of the first batch from `start` on that ends behind position `limit`."""
        floor = self.offset_index.floor_value(limit) if self.trusts_index else None
        nearest = max(start, floor[1]) if floor is not None else start
        for first, end in intact_bytes(self.damage, nearest, self.size_bytes):
            if (found := find_batch(self._fs, self.fd, first, end, MAX_LONG, limit)) is not None:
                return found.position, found.base_offset
        return self.size_bytes, self.next_offset

    def _remember(self, next_offset: int, position: int) -> None:
        """Stores the position of `next_offset`, from which the reader is likely to go on; batches never move."""
        if len(self._resume_positions) >= MAX_RESUME_POSITIONS:
            self._resume_positions.clear()
        self._resume_positions[next_offset] = position

    def add_damage(self, damaged: DamagedRange) -> None:
        """Adds a damaged range, which reads pass over, and forgets remembered positions, which may lie in it."""
        self.damage = with_added(self.damage, damaged)
        self._resume_positions.clear()

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of the records; where none has one, the file's modification time. Raises OSError.

        Messages of clients before 0.10 have no timestamps. Kafka does the same (LogSegment.largestTimestamp).
        """
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        """The modification time of the `.log` file. Raises OSError."""
        return self._fs.modified_ms(self.fd)

    def set_modified_ms(self, time_ms: int) -> None:
        """Sets the modification time of the `.log` file; the next `sync` makes it durable. Raises OSError."""
        self._fs.set_modified_ms(self.fd, time_ms)
        self._is_synced = False

    def begin(self) -> None:
        """Makes new files ready for appends, and recovers them if they hold something. Raises OSError."""
        is_fresh = not (self.size_bytes or len(self.offset_index) or len(self.time_index))
        if not is_fresh or not self._indexes_are_sane():
            self.recover(AllowedGaps(), truncate=True)
            return
        self.offset_index.grow()
        self.time_index.grow()
        self.was_recovered, self.has_producer_ids = True, False

    def load_closed(self, next_offset: int) -> bool:
        """Loads a closed segment by its indexes; returns false if one is wrong and must be rebuilt. Raises OSError.

        No batch is read (`is_as_indexed`).
        """
        self.next_offset = next_offset
        last = self.time_index.last
        if not self._indexes_are_sane() or (last is None and self.size_bytes):
            return False
        if last is not None and self.size_bytes:
            self.max_timestamp, self.max_timestamp_offset = last[0], self.base_offset + last[1]
        return True

    @property
    def indexed_end(self) -> int:
        """The offset behind the last one that an index names. A segment whose batches end before it was cut since."""
        return self.base_offset + end_named(self.offset_index, self.time_index)

    def load_active(self) -> bool:
        """Loads the newest segment after a clean shutdown; returns false where indexes or batches are wrong.

        Headers are read from the last index entry on, so the tail is checked at little cost.
        """
        if not self._indexes_are_sane():
            return False
        self.offset_index.grow()
        self.time_index.grow()
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full
        last, newest = self.offset_index.last, self.time_index.last
        start = last[1] if last is not None else 0
        if newest is not None:
            self.max_timestamp, self.max_timestamp_offset = newest[0], self.base_offset + newest[1]
            self._indexed_timestamp = newest[0]
        try:
            return self._load_tail(start)
        except RecordError:
            return False

    def recover(self, gaps: AllowedGaps, *, truncate: bool, synced: Synced = NOTHING_SYNCED) -> tuple[int, str]:
        """Reads all batches and rebuilds the indexes; returns (bytes behind the last valid batch, why invalid).

        Damage in what was `synced` becomes damaged ranges. With `truncate` the bytes behind the last valid batch are
        cut off. Offsets may be left out where `gaps` allows it, and in repaired ranges. Raises OSError.
        """
        self.offset_index.clear()
        self.time_index.clear()
        self._indexed_position, self._indexed_timestamp, self._last = 0, NOTHING_INDEXED, (self.base_offset, 0)
        self.is_index_full = False
        self.was_recovered, self.has_producer_ids, self._is_synced = True, False, False
        self.max_timestamp, self.max_timestamp_offset, self.is_newest_known = NO_TIMESTAMP, self.base_offset, True
        self.next_offset, self.damage, self.led = self.base_offset, (), []
        max_offset = self.base_offset + MAX_RELATIVE_OFFSET
        end, reason = self._add_valid(0, gaps)
        while end < self.size_bytes:
            bounds = SearchBounds(self.size_bytes, self.next_offset, max_offset)
            if not is_synced(self._fs, self.fd, end, bounds, synced, truncate=truncate):
                break
            found = damaged_from(self._fs, self.fd, end, bounds, synced, reason)
            self.add_damage(found)
            self.next_offset = found.end_offset
            end, reason = self._add_valid(found.end_position, gaps)
        cut_bytes = self.size_bytes - end
        if cut_bytes and truncate:
            self._fs.truncate(self.fd, end)
            self.size_bytes = end
        return cut_bytes, reason

    def _add_valid(self, position: int, gaps: AllowedGaps) -> tuple[int, str]:
        """Adds valid batches from `position` on to the indexes; returns (their end, why the next one is invalid)."""
        walk = WalkedFrom(position, self.size_bytes, self.base_offset, self.next_offset, gaps, self.led, self.repaired)
        end = position
        try:
            for at, header in valid_batches(self._fs, self.fd, walk):
                if header.producer_id != NO_PRODUCER_ID or header.is_control:
                    self.has_producer_ids = True
                self.add(at, header.base_offset + header.last_offset_delta, header.max_timestamp)
                end = at + LOG_OVERHEAD_BYTES + header.batch_length
        except RecordError as error:
            return end, str(error)
        return end, ""

    def _load_tail(self, start: int) -> bool:
        end = start
        for position, header in self.headers(start):
            if header.base_offset < self.next_offset:
                return False
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
            end, self.next_offset = position + header.size_bytes, header.next_offset
            self._last = header.last_offset, position
        self._indexed_position = start
        if end:
            self.first_timestamp = read_header(self._fs.pread(self.fd, HEADER_BYTES, 0)).max_timestamp
        return end == self.size_bytes

    def _indexes_are_sane(self) -> bool:
        return (
            self.offset_index.is_sane(max(self.size_bytes - 1, 0))
            and self.time_index.is_sane(MAX_RELATIVE_OFFSET)
            and self.transaction_index.is_sane(self.base_offset)
        )

    def retain(self) -> bool:
        """Keeps the files open until `release`; returns false where they are closed already."""
        with self._users_lock:
            if not self._users:
                return False
            self._users += 1
            return True

    def release(self) -> None:
        """Undoes one `retain`, or the hold that the log has from the beginning; the last `release` closes the files."""
        with self._users_lock:
            self._users -= 1
            if self._users:
                return
        self._fs.close(self.fd)
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()

    def file_paths(self) -> list[str]:
        """Returns the paths of the segment's files that exist, the `.log` first; raises OSError."""
        return [path for path in map(self._file, SEGMENT_SUFFIXES) if self._fs.exists(path)]

    def change_suffix(self, file_suffix: str) -> None:
        """Renames the files to end with `file_suffix`, the `.log` last, as that one decides. Raises OSError."""
        before = [self._file(suffix) for suffix in SEGMENT_SUFFIXES]
        self._file_suffix = file_suffix
        after = [self._file(suffix) for suffix in SEGMENT_SUFFIXES]
        for source, target in reversed(list(zip(before, after, strict=True))):
            if self._fs.exists(source):
                self._fs.rename(source, target)
        self.path = self._file(LOG_SUFFIX)
        self.offset_index.path = self._file(OFFSET_INDEX_SUFFIX)
        self.time_index.path = self._file(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self._file(TRANSACTION_INDEX_SUFFIX)

    def _file(self, suffix: str) -> str:
        return self._stem + suffix + self._file_suffix

    def _index_max_timestamp(self) -> None:
        if self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset):
            self.is_index_full = True
        self._indexed_timestamp = self.max_timestamp
