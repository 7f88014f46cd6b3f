"""Where a log may leave out offsets: below one offset, and nowhere from there on.

    offset     0 ...................... 4711 ..................... log end
               gaps are compaction's    │ each batch follows on the one before it
               or a repair's            gapless from here on

A log that is written by its leader has no gaps. Compaction makes some, a repair leaves some, and a follower copies what
its leader has. All of them tell this value first, so from `gapless_from` on a gap is damage, whoever meets it: a read,
`verify`, the follower to which the leader sends it. The CRC of a batch does not cover its base offset and a wrong
length passes over batches, so nothing else would tell.

The file `offset-gaps` in a log's folder is what a start knows of it (docs/formats/):

    version: 0
    below: 4711             offsets below may be left out; without this line any may

It is written, synced, before the first gap that it does not allow. A crash behind it leaves a log that may have gaps
and has none, which costs nothing but the check. A file that can't be read allows gaps anywhere. Release 0.1
looks only whether there is a file.

What a start knows:

| what is there | gapless from |
|---|---|
| the file with an offset | that offset |
| the file without one | the log's end: what comes later is noted gap by gap |
| an entry in `cleaner-offset-checkpoint` | the entry, the first dirty offset |
| none of these | the log's start |

A log whose topic is compacted is gapless from the end that it has when that is learned, since Apache Kafka's followers
note nothing. What a repair gave up is known range by range (`RepairedRange`), and is told to followers as one offset.

A reader takes the offset after the batches, and compaction raises it before it removes any: so it covers what was read.
Any thread may call `allow` and `note`; the rest belongs to the log's own.
"""

from __future__ import annotations

import logging
import os
from threading import Lock

from millrace.config import MAX_LONG
from millrace.fs import FileSystem, read_file, write_file_durably
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import OFFSET_GAPS

logger = logging.getLogger(__name__)

VERSION = "version: 0"
ANYWHERE = MAX_LONG
_BELOW = "below: "


def read_allowed(fs: FileSystem, directory: str) -> int:
    """Returns the offset below which the file `offset-gaps` lets a log leave out offsets. Raises OSError.

    0 where there is no file, `ANYWHERE` where it names no offset or can't be read.
    """
    path = os.path.join(directory, OFFSET_GAPS)
    try:
        lines = read_file(fs, path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return 0
    if lines == [VERSION]:
        return ANYWHERE
    if len(lines) == 2 and lines[0] == VERSION and lines[1].startswith(_BELOW):
        digits = lines[1].removeprefix(_BELOW)
        if digits.isascii() and digits.isdecimal():
            return min(int(digits), ANYWHERE)
    logger.warning("%s is damaged, so the log may leave out offsets anywhere", path)
    return ANYWHERE


def known_at_start(allowed_below: int, *, end_offset: int, first_dirty_offset: int | None) -> int:
    """Returns from which offset on a log that is opened leaves out none (the table above)."""
    return max(end_offset if allowed_below == ANYWHERE else allowed_below, first_dirty_offset or 0)


class OffsetGaps:
    """The offset from which on one log leaves out none, and the one below which its file allows gaps.

    Repaired ranges are no part of `gapless_from`; the last of them ends at `repaired_end`.
    """

    __slots__ = ("_directory", "_fs", "_lock", "allowed_below", "gapless_from", "repaired_end")

    def __init__(self, fs: FileSystem, directory: str, *, allowed_below: int, gapless_from: int) -> None:
        self._fs = fs
        self._directory = directory
        self._lock = Lock()
        self.allowed_below = allowed_below
        self.gapless_from = gapless_from
        self.repaired_end = 0

    @property
    def told(self) -> int:
        """The offset from which on followers get all offsets: neither compaction nor a repair has removed one."""
        return max(self.gapless_from, self.repaired_end)

    def allow(self, below: int) -> None:
        """Lets the log leave out offsets below `below`, durably. Raises StorageError, and then nothing has changed."""
        if below <= self.allowed_below:
            return
        path = os.path.join(self._directory, OFFSET_GAPS)
        with self._lock, storage_errors(path):
            if below > self.allowed_below:
                lines = [VERSION] if below == ANYWHERE else [VERSION, f"{_BELOW}{below}"]
                write_file_durably(self._fs, path, "".join(f"{line}\n" for line in lines).encode())
                self.allowed_below = below

    def begin(self, below: int) -> None:
        """Does `allow` and `note`: compaction is about to leave out offsets below `below`. Raises StorageError."""
        self.allow(below)
        self.note(below)

    def learn(self, config: LogConfig, end_offset: int) -> None:
        """Notes that offsets of a log that ends at `end_offset` may be left out if its topic is compacted."""
        if config.is_compacted:
            self.note(end_offset)

    def note(self, end_offset: int) -> None:
        """Notes that offsets up to, not including, `end_offset` may be left out."""
        with self._lock:
            self.gapless_from = max(self.gapless_from, end_offset)

    def take_over(self, other: OffsetGaps) -> None:
        """Takes what is known of the same log in another folder."""
        self.gapless_from, self.repaired_end = other.gapless_from, other.repaired_end

    def cut(self, end_offset: int) -> None:
        """Notes that the log ends at `end_offset`: what was left out above it is gone."""
        self.gapless_from = min(self.gapless_from, end_offset)
        self.repaired_end = min(self.repaired_end, end_offset)
