"""Whether a data folder can be relied on: one failure in it takes its own partitions offline, and no others.

What is on the disk after a failed fsync is not known until the folder is opened again, and neither is it after a failed
write that could not be cut off. From then on no log of the folder takes an append or a flush; reads go on. A disk that
is merely full is no such failure: the append is refused, and the next one may find room; the log says so once, and once
when there is room again. Neither is a process that has
used up its descriptors, as nothing was tried.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from millrace_broker.metrics import Durations
from millrace_broker.storage.failures import is_disk_full, is_out_of_descriptors, storage_error

logger = logging.getLogger(__name__)


class DirHealth:
    """The state that a data folder and its logs share. Any thread may report a failure; the first one counts.

    `refusals` counts the appends that found no room, `flushes` the times that flushes took.
    """

    __slots__ = ("flushes", "is_full", "path", "reason", "refusals")

    def __init__(self, path: str) -> None:
        self.path = path
        self.reason: str | None = None
        self.refusals = 0
        self.is_full = False
        self.flushes = Durations()

    def fail(self, reason: str) -> None:
        """Takes the folder offline from now on, and says so once, in the log."""
        if self.reason is None:
            self.reason = reason
            logger.error("%s is offline: %s", self.path, reason)

    def note_refusal(self, error: OSError) -> None:
        """Counts an append that failed, if it failed for want of room."""
        if is_disk_full(error):
            self.refusals += 1
            if not self.is_full:
                self.is_full = True
                logger.error("%s: the disk is full, and appends are refused: %s", self.path, error)

    def note_room(self) -> None:
        """Says, after appends were refused, that there is room again."""
        if self.is_full:
            self.is_full = False
            logger.warning("%s: the disk has room again, and appends are taken", self.path)

    @contextmanager
    def guard(self, path: str) -> Iterator[None]:
        """Takes the folder offline at an OSError of the body, which becomes a StorageError about `path`."""
        try:
            yield
        except OSError as error:
            if not is_out_of_descriptors(error):
                self.fail(f"{path}: {error.strerror or error}")
            raise storage_error(path, error) from error
