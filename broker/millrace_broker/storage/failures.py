"""What an error of the operating system means here: StorageError, with the path named."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from millrace.errors import StorageError


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turn an OSError of the body into a StorageError about `path`."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: str, error: OSError) -> StorageError:
    """The StorageError to raise for an OSError."""
    return StorageError(f"{path}: {error.strerror or error}")


def is_disk_full(error: OSError) -> bool:
    """Whether the disk, the quota or the limit of a file's size is used up: no fault, and it may pass."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
