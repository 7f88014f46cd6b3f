"""The failures of a table's loads since the last one that succeeded: a small file in the table's folder.

    DIR/_failed_loads.json    their number, the times of the first and the newest, and the error of the newest

A load that fails replaces the file, and one that succeeds removes it, also where there was nothing new. Readers of
Delta tables pass over names that begin with an underscore, and so does vacuum. The file is for those who look at the
table and decides nothing: where it can't be written or removed, a warning says so, and the load ends as it would have.

A crash leaves the file as it was or as it was to be, or a temporary file that the next failure overwrites. A load whose
process is killed is not noted, nor is one whose table does not exist yet. Of two loads that fail at the same time one
may not be counted. A table in a bucket has no such file: a bucket that can't be reached would hold up the load's own
error.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from millrace.clock import Clock
from millrace.fs import FileSystem, write_file_durably
from millrace_pipelines.warehouse.delta.store import LOG_DIRECTORY, TableFiles, store_at

logger = logging.getLogger(__name__)

FAILED_LOADS_FILE = "_failed_loads.json"
MAX_SENTENCE = 1_000
MAX_BYTES = 16_384  # JSON takes up to 12 bytes for a character


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLoads:
    """The loads of a table that failed in a row; numbers are None where their file can't be read, as `sentence` says.

    Attributes:
        times: How many loads failed in a row.
        first_ms: When the first of them failed.
        newest_ms: When the newest of them failed.
        error: The name of the newest one's error.
        sentence: What that error says, in one line of MAX_SENTENCE characters at most.
    """

    times: int | None = None
    first_ms: int | None = None
    newest_ms: int | None = None
    error: str = ""
    sentence: str = ""

    @property
    def reason(self) -> str:
        """Returns the name of the newest error, and its sentence."""
        return ": ".join(one for one in (self.error, self.sentence) if one)


@contextmanager
def failures_noted(location: str, fs: FileSystem, clock: Clock) -> Iterator[None]:
    """Notes a failure of the table's load where the code inside raises an error, else removes all noted failures."""
    store = store_at(location, fs)
    path = os.path.join(store.root, FAILED_LOADS_FILE)
    try:
        yield
    except Exception as error:
        with _only_a_warning(path):
            if _is_folder_of_a_table(store, fs):
                _add(path, error, fs, clock.now_ms())
        raise
    with _only_a_warning(path), suppress(FileNotFoundError):
        if store.is_local:
            fs.unlink(path)
            fs.fsync_dir(store.root)


def read_failed_loads(location: str, fs: FileSystem) -> FailedLoads | None:
    """Returns the failures of a table's loads since the last one that succeeded; None where there are none."""
    store = store_at(location, fs)
    return _read(os.path.join(store.root, FAILED_LOADS_FILE), fs) if store.is_local else None


def _is_folder_of_a_table(store: TableFiles, fs: FileSystem) -> bool:
    return store.is_local and fs.exists(os.path.join(store.root, LOG_DIRECTORY))


def _add(path: str, error: Exception, fs: FileSystem, now_ms: int) -> None:
    before = _read(path, fs) or FailedLoads()
    failed = FailedLoads(
        times=(before.times or 0) + 1,
        first_ms=before.first_ms or now_ms,
        newest_ms=now_ms,
        error=type(error).__name__,
        sentence=_in_one_line(str(error)),
    )
    write_file_durably(fs, path, json.dumps(asdict(failed)).encode())


def _read(path: str, fs: FileSystem) -> FailedLoads | None:
    try:
        fd = fs.open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(error)
    try:
        return _parsed(fs.pread(fd, MAX_BYTES, 0))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        return _unreadable(error)
    finally:
        fs.close(fd)


def _parsed(content: bytes) -> FailedLoads:
    """Returns the failures in a file's content; raises ValueError or another error of `json` where it is damaged."""
    found = FailedLoads(**json.loads(content))
    numbers = (found.times, found.first_ms, found.newest_ms)
    if not all(isinstance(one, int) for one in numbers) or not found.reason.isprintable():
        raise ValueError("not what a load writes")
    return found


def _unreadable(error: Exception) -> FailedLoads:
    return FailedLoads(sentence=f"{FAILED_LOADS_FILE} in the table's folder can't be read: {_in_one_line(str(error))}")


def _in_one_line(text: str) -> str:
    """Returns a text without line ends and other characters that are not printed, and cut to MAX_SENTENCE."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= MAX_SENTENCE else f"{line[: MAX_SENTENCE - 1]}…"


@contextmanager
def _only_a_warning(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  # whatever it is, the outcome of the load itself comes first
        logger.warning("%s tells no more how the newest load ended: %s", path, error)
