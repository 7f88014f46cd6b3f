"""Closing the logs of a data folder, several at once, as a disk syncs many files faster side by side."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from millrace.errors import StorageError
from millrace_broker.storage.log.log import Log

logger = logging.getLogger(__name__)

CLOSING_THREADS = 8  # the threads wait for the disk and need no processor


def close_all(logs: Iterable[Log], recovery_threads: int) -> list[StorageError]:
    """Flushes and closes every log, by at least as many threads as recover them; returns what went wrong."""
    threads = max(recovery_threads, CLOSING_THREADS)
    with ThreadPoolExecutor(threads, thread_name_prefix="close-log") as pool:
        return [error for error in pool.map(_close, logs) if error is not None]


def _close(log: Log) -> StorageError | None:
    try:
        log.close()
    except StorageError as error:
        logger.error("close failed: %s", error)  # noqa: TRY400 -- the first one is raised by the caller
        return error
    return None
