"""Errors of the operating system become StorageError, which names the path."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from millrace.descriptor_pool import OUT_OF_DESCRIPTORS
from millrace.errors import StorageError, is_unforeseen

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class AppendWaitsError(StorageError):
    """An append has to wait for the disk first, and belongs on a worker."""

    retriable = True


def each_tried(items: Iterable[Item], work: Callable[[Item], Outcome], what: str) -> Iterator[Outcome]:
    """Yields what `work` returns for each item; logs failures, and raises the first one at the end."""
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
    """Turns an OSError of the body into a StorageError about `path`.

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
    """Returns whether the disk, the quota or the limit of a file's size is used up: no fault, and it may pass."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_out_of_descriptors(error: OSError) -> bool:
    """Returns whether all descriptors are in use, by connections: nothing was tried, and it may pass."""
    return error.errno in OUT_OF_DESCRIPTORS
