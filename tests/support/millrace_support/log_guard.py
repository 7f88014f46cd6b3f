r"""A plugin of pytest: a test fails if the logs of its brokers hold an error or a traceback that it does not expect.

    @pytest.mark.broker_errors(r"storage\.failures: \S+ is offline: No space left")
    def test_a_full_disk(tmp_path): …

Whatever was written since the end of the test before counts, so a broker of a module is charged to the test that runs,
and its end to the module's last test. The log of a `BrokerProcess` is looked at by itself, that of a platform where a
test or a fixture says so:

    with GUARD.folder(directory / "logs"), Platform(…) as platform: …

What asyncio logs as an error in the tests' own process counts, too, where it was raised in a module of Millrace: an
exception of a callback, or of a task that nobody has awaited.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from traceback import walk_tb
from types import TracebackType
from typing import IO

import pytest

from millrace.testing.broker import BrokerProcess
from millrace_support.log_faults import TRACEBACK, faults, whole_entries

Start = Callable[[Sequence[str], IO[bytes]], Popen[bytes]]

ANY_FAULT = f"ERROR millrace_broker: {TRACEBACK}:"  # a pattern that is found in this one expects all of them
SHOWN = 10


def _is_ours(traceback: TracebackType | None) -> bool:
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(traceback)]
    return any(name.startswith("millrace") for name in modules)


class Tail:
    """A log file, open on its own, from which each line is taken once.

    Args:
        descriptor: The file's; it is closed by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._taken = 0

    def take(self, *, is_last: bool) -> str:
        """Returns the whole lines that have been added; a traceback comes whole, unless this is the last time."""
        size = os.fstat(self._descriptor).st_size
        added = os.pread(self._descriptor, size - self._taken, self._taken)
        lines = added[: added.rfind(b"\n") + 1].decode(errors="surrogateescape")
        taken = (lines if is_last else whole_entries(lines)).encode(errors="surrogateescape")
        self._taken += len(taken)
        return taken.decode(errors="replace")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


class LogGuard(logging.Handler):
    """Collects the faults in the logs of a process of tests; as a handler, those that its own loggers tell of."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self._faults: list[str] = []
        self._files: dict[IO[bytes], Tail] = {}
        self._folders: dict[Path, dict[int, Tail]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps an event whose exception is ours; those of other clients come when their garbage is collected."""
        if record.exc_info and _is_ours(record.exc_info[2]):
            self._faults.append(self.format(record))

    def watching(self, start: Start) -> Start:
        """Returns a start of brokers after which their stderr is looked at until it is closed."""

        def started(command: Sequence[str], stderr: IO[bytes]) -> Popen[bytes]:
            if stderr not in self._files:
                self._files[stderr] = Tail(os.dup(stderr.fileno()))
            return start(command, stderr)

        return started

    @contextmanager
    def folder(self, path: Path) -> Iterator[None]:
        """Looks at the logs in a folder until the end of the context; each one stays open, whatever its name is."""
        logs = self._folders[path] = {}
        try:
            yield
        finally:
            self._look_into(path, logs, is_last=True)
            del self._folders[path]
            for log in logs.values():
                log.close()

    def check(self, expected: Collection[str]) -> None:
        """Fails the test if something has come that none of these patterns is found in."""
        for pattern in expected:
            assert not re.search(pattern, ANY_FAULT), f"{pattern!r} expects every error"
        self.look()
        taken, self._faults = self._faults, []
        found = [one for one in taken if not any(re.search(pattern, one) for pattern in expected)]
        if found:
            shown = "\n".join(found[:SHOWN])
            pytest.fail(f"{len(found)} errors in logs are not expected, such as\n{shown}", pytrace=False)

    def look(self) -> None:
        """Reads what the logs have had since the last look; `check` does it, too."""
        for file, tail in list(self._files.items()):
            is_last = file.closed
            self._faults += faults(tail.take(is_last=is_last))
            if is_last:
                tail.close()
                del self._files[file]
        for path, logs in self._folders.items():
            self._look_into(path, logs, is_last=False)

    def _look_into(self, path: Path, logs: dict[int, Tail], *, is_last: bool) -> None:
        for one in path.glob("*.log"):
            if (inode := one.stat().st_ino) not in logs:
                logs[inode] = Tail(os.open(one, os.O_RDONLY))
        for log in logs.values():
            self._faults += faults(log.take(is_last=is_last))


GUARD = LogGuard()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Looks at the logs of the brokers that are started from now on."""
    config.addinivalue_line("markers", "broker_errors(*patterns): errors that the logs of the test's brokers may hold")
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    patch.setattr(BrokerProcess, "start_process", staticmethod(GUARD.watching(BrokerProcess.start_process)))
    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.addHandler(GUARD)
    config.add_cleanup(lambda: asyncio_logger.removeHandler(GUARD))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Looks at the logs once all that ends with the test has ended."""
    try:
        return (yield)
    finally:
        GUARD.check([pattern for mark in item.iter_markers("broker_errors") for pattern in mark.args])
