"""Errors of the operating system become StorageError, which names the path; and one of a data folder may be its end.

One failure in a data folder takes its own partitions offline, and no others (`DirHealth`). What is on the disk after a
failed fsync is not known until the folder is opened again, and neither is it after a failed write that could not be cut
off. From then on no log of the folder takes an append or a flush; reads go on. A disk that is merely full is no such
failure: the append is refused, and the next one may find room; the log says so once, and once when there is room again.
Neither is a process that has used up its descriptors, as nothing was tried.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from millrace.descriptor_pool import OUT_OF_DESCRIPTORS
from millrace.errors import StorageError, is_unforeseen
from millrace_broker.metrics import Durations

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class AppendWaitsError(StorageError):
    """Says that an append must first change files on the disk, so that it has to be made on a worker thread."""

    retriable = True


def each_tried(items: Iterable[Item], work: Callable[[Item], Outcome], what: str) -> Iterator[Outcome]:
    """Yields what `work` returns for each item; logs errors (of `what`), and raises the first after the last item."""
    failures: list[Exception] = []
    for item in items:
        try:
            outcome = work(item)
        except Exception as error:  # the first one is raised below, after all were tried
            logger.error("%s failed: %s", what, error, exc_info=is_unforeseen(error))  # noqa: TRY400
            failures.append(error)
        else:
            yield outcome
    if failures:
        raise failures[0]


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turns an OSError that is raised within the context into a StorageError about `path`.

    A ConnectionError passes: it comes from the peer to whom a file is sent.
    """
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: str, error: OSError) -> StorageError:
    """Returns the StorageError to raise for an OSError."""
    return StorageError(f"{path}: {error.strerror or error}")


def is_disk_full(error: OSError) -> bool:
    """Returns whether the disk, the quota or the limit of a file's size is used up, which is no broken disk."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_out_of_descriptors(error: OSError) -> bool:
    """Returns whether all file descriptors are in use, by connections: the disk was not tried, and it may pass."""
    return error.errno in OUT_OF_DESCRIPTORS


class DirHealth:
    """The state of a data folder, online or not, for all its logs. Any thread may `fail` it; the first reason counts.

    `reason` says why it is offline, None if not. `refusals` counts the appends that found no room, `flushes` measures
    how long flushes took.
    """

    __slots__ = ("flushes", "is_full", "path", "reason", "refusals")

    def __init__(self, path: str) -> None:
        self.path = path
        self.reason: str | None = None
        self.refusals = 0
        self.is_full = False
        self.flushes = Durations()

    def fail(self, reason: str) -> None:
        """Takes the folder offline for good, with a reason; the first call logs an error."""
        if self.reason is None:
            self.reason = reason
            logger.error("%s is offline: %s", self.path, reason)

    def note_refusal(self, error: OSError) -> None:
        """Counts a failed append as refused if the disk was full, and logs it the first time."""
        if is_disk_full(error):
            self.refusals += 1
            if not self.is_full:
                self.is_full = True
                logger.error("%s: the disk is full, and appends are refused: %s", self.path, error)

    def note_room(self) -> None:
        """Says in the broker's log that the disk has room again, if appends were refused before."""
        if self.is_full:
            self.is_full = False
            logger.warning("%s: the disk has room again, and appends are taken", self.path)

    @contextmanager
    def guard(self, path: str) -> Iterator[None]:
        """Takes the folder offline at an OSError within the context, which becomes a StorageError about `path`."""
        try:
            yield
        except OSError as error:
            if not is_out_of_descriptors(error):
                self.fail(f"{path}: {error.strerror or error}")
            raise storage_error(path, error) from error
