"""A file of the pool is used without its lock: whatever another thread does between any two steps, the use is whole.

Steps are opcodes of CPython. One side is stopped before each of its steps in turn; the other does its part meanwhile.
"""

import errno
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random

import pytest

from millrace import descriptor_pool
from millrace.descriptor_pool import PooledFileSystem
from millrace.fs import OsFileSystem


class WatchedDisk(OsFileSystem):
    """Calls `amid_read` during each read, and notes descriptors that are closed during one."""

    def __init__(self):
        self.readers = Counter()
        self.cut_off = []
        self.amid_read = lambda: None

    def pread(self, fd, length, position):
        self.readers[fd] += 1
        try:
            self.amid_read()
            return super().pread(fd, length, position)
        finally:
            self.readers[fd] -= 1

    def close(self, fd):
        if self.readers[fd]:
            self.cut_off.append(fd)
        super().close(fd)


class Rivals:
    """Two files, whose content is their path, and one descriptor; `file` is the pool's entry of the one that has it."""

    def __init__(self, folder):
        self.disk = WatchedDisk()
        self.pool = PooledFileSystem(self.disk, 1)
        self.rival, self.fd = (self.filled(str(folder / name)) for name in ("rival", "holder"))
        self.content = str(folder / "holder")
        self.file = self.pool._files[self.fd]
        self.found = []
        self.is_reading, self.go_on = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.read)

    def filled(self, path):
        fd = self.pool.open(path, create=True)
        self.pool.pwritev(fd, [path.encode()], 0)
        self.pool.fsync(fd)
        return fd

    def read(self):
        try:
            self.found.append(self.pool.pread(self.fd, 1000, 0).decode())
        except OSError as error:
            self.found.append(error.errno)
        finally:
            self.is_reading.set()

    def begin_read(self):
        """Starts a thread that stays inside a read until `go_on`."""
        self.disk.amid_read = lambda: (self.is_reading.set(), self.go_on.wait())
        self.thread.start()
        self.is_reading.wait()

    def end_read(self):
        self.go_on.set()
        while self.file.pins:
            time.sleep(0)

    def lose(self, how):
        """Takes the descriptor away, or closes the file; does nothing while another thread holds the lock."""
        if not self.pool._lock.locked() and self.fd in self.pool._files:
            self.pool.size(self.rival) if how == "another is used" else self.pool.close(self.fd)

    def check(self, *, was_closed):
        self.go_on.set()
        if self.thread.ident is not None:
            self.thread.join()
        assert self.disk.cut_off == []
        assert set(self.found) <= {self.content, *([errno.EBADF] if was_closed else [])}
        if not was_closed:
            self.pool.close(self.fd)
        self.pool.close(self.rival)
        assert self.pool.open_count == 0


def interrupted(call, at, interruption):
    """Calls `call`, and `interruption` before the `at`-th step in the pool's code; returns whether there was one."""
    steps = 0

    def trace(frame, event, _):
        nonlocal steps
        if frame.f_code.co_filename != descriptor_pool.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == at:
                interruption()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps >= at


def at_every_step(attempt):
    """Calls `attempt` with 1, 2, ... until it returns that there was no such step."""
    steps = next(at for at in count(1) if not attempt(at))
    assert steps > 20


HOW = pytest.mark.parametrize("how", ["another is used", "it is closed"])


@HOW
@pytest.mark.parametrize("is_at_hand", [True, False])
def test_the_descriptor_is_lost_amid_a_read(tmp_path, how, is_at_hand):
    def attempt(at):
        rivals = Rivals(tmp_path)
        if not is_at_hand:
            rivals.pool.size(rivals.rival)
        was_there = interrupted(rivals.read, at, lambda: rivals.lose(how))
        rivals.check(was_closed=rivals.fd not in rivals.pool._files)
        return was_there

    at_every_step(attempt)


@HOW
def test_a_read_begins_amid_the_loss(tmp_path, how):
    def attempt(at):
        rivals = Rivals(tmp_path)
        was_there = interrupted(
            lambda: rivals.lose(how),
            at,
            lambda: rivals.begin_read() if rivals.file.is_at_hand else None,  # else it would wait for the lock
        )
        rivals.check(was_closed=how == "it is closed")
        return was_there

    at_every_step(attempt)


@HOW
def test_a_read_ends_amid_the_loss(tmp_path, how):
    def attempt(at):
        rivals = Rivals(tmp_path)
        rivals.begin_read()
        was_there = interrupted(lambda: rivals.lose(how), at, rivals.end_read)
        rivals.check(was_closed=how == "it is closed")
        return was_there

    at_every_step(attempt)


@pytest.fixture
def _threads_take_turns_often():
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("_threads_take_turns_often")
def test_no_descriptor_is_closed_amid_a_read_of_many_threads(tmp_path):
    disk = WatchedDisk()
    pool = PooledFileSystem(disk, 2)
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.write_text(path.name)
    fds = [pool.open(str(path)) for path in paths]

    def use(thread):
        chance = Random(thread)
        for _ in range(1000):
            slot = chance.randrange(4)
            assert pool.pread(fds[slot], 100, 0) == paths[slot].name.encode()
            if chance.random() < 0.1:
                passing = pool.open(str(paths[slot]))
                assert pool.pread(passing, 100, 0) == paths[slot].name.encode()
                pool.close(passing)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(use, range(6)))
    assert disk.cut_off == []
    for fd in fds:
        pool.close(fd)
    assert pool.open_count == 0
