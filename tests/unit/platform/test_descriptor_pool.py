import errno
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from millrace.descriptor_pool import PooledFileSystem, file_limit
from millrace.fs import OsFileSystem
from millrace_support.crash_fs import CrashFileSystem

LIMIT = 3


def filled(fs, paths):
    """A descriptor of each path, whose content is the path."""
    fds = [fs.open(path, create=True) for path in paths]
    for fd, path in zip(fds, paths, strict=True):
        fs.pwritev(fd, [path.encode()], 0)
        fs.fsync(fd)
    return fds


def content(fs, fd):
    return fs.pread(fd, fs.size(fd), 0).decode()


def disk_and_pool(limit=LIMIT):
    disk = CrashFileSystem()
    disk.mkdir("/d")
    return disk, PooledFileSystem(disk, limit)


def test_any_number_of_files_is_read_through_a_few_descriptors(tmp_path):
    pool = PooledFileSystem(OsFileSystem(), LIMIT)
    paths = [str(tmp_path / str(number)) for number in range(20)]
    fds = filled(pool, paths)
    for _ in range(2):
        assert [content(pool, fd) for fd in fds] == paths
        assert pool.open_count == LIMIT
    for fd in fds:
        pool.close(fd)
    assert pool.open_count == 0


def test_the_file_used_longest_ago_gives_its_descriptor_back():
    disk, pool = disk_and_pool(2)
    busy, *others = filled(pool, ["/d/busy", "/d/1", "/d/2", "/d/3"])
    for fd in others:
        content(pool, busy)
        disk.fail("open", code=errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            pool.size(fd)
        content(pool, busy)
        content(pool, fd)


def test_a_file_is_found_again_by_its_new_name_and_its_folders():
    _, pool = disk_and_pool(1)
    (fd,) = filled(pool, ["/d/old"])
    filled(pool, ["/d/other"])
    pool.rename("/d/old", "/d/new")
    assert content(pool, fd) == "/d/old"
    filled(pool, ["/d/another"])
    pool.rename("/d", "/e")
    assert content(pool, fd) == "/d/old"
    assert pool.listdir("/e") == ["another", "new", "other"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_reader_of_a_file_without_a_name_finishes(replaced):
    disk, pool = disk_and_pool(1)
    (fd,) = filled(pool, ["/d/old"])
    filled(pool, ["/d/other"])
    if replaced:
        pool.rename("/d/other", "/d/old")
    else:
        pool.unlink("/d/old")
    filled(pool, ["/d/1", "/d/2"])
    assert content(pool, fd) == "/d/old"
    pool.close(fd)
    assert disk.open_files == pool.open_count == 1


def test_a_lock_is_kept():
    _, pool = disk_and_pool(1)
    holder, rival = pool.open("/d/lock", create=True), pool.open("/d/lock")
    pool.lock(holder)
    filled(pool, ["/d/1", "/d/2"])
    with pytest.raises(BlockingIOError):
        pool.lock(rival)


def test_what_was_written_is_synced_before_its_descriptor_goes_and_others_go_first():
    disk, pool = disk_and_pool(2)
    filled(pool, ["/d/synced"])
    fd = pool.open("/d/file", create=True)
    disk.fsync_dir("/d")
    disk.fsync_dir("/")
    pool.pwritev(fd, [b"content"], 0)
    filled(pool, ["/d/1"])
    assert read_after_cut(disk) == b""
    other = pool.open("/d/2", create=True)
    pool.pwritev(other, [b"x"], 0)
    assert read_after_cut(disk) == b""
    pool.open("/d/3", create=True)
    assert read_after_cut(disk) == b"content"


def read_after_cut(disk):
    survivor = disk.after_cut()
    return survivor.pread(survivor.open("/d/file"), 100, 0)


def test_an_error_of_that_sync_is_the_files_own():
    disk, pool = disk_and_pool(1)
    fd = pool.open("/d/file", create=True)
    pool.pwritev(fd, [b"content"], 0)
    disk.fail("fsync")
    (other,) = filled(pool, ["/d/other"])
    pool.fsync(other)
    assert pool.pread(fd, 7, 0) == b"content"
    with pytest.raises(OSError, match="Input/output"):
        pool.fsync(fd)
    pool.fsync(fd)


def test_a_file_that_cannot_be_opened_again_says_so_each_time():
    disk, pool = disk_and_pool(1)
    fd, _ = filled(pool, ["/d/file", "/d/other"])
    disk.unlink("/d/file")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            pool.size(fd)
    pool.close(fd)
    assert disk.open_files == pool.open_count


def test_where_the_system_gives_no_more_descriptors_the_pool_gives_one_back():
    disk, pool = disk_and_pool(100)
    fds = filled(pool, [f"/d/{number}" for number in range(5)])
    disk.fail("open", code=errno.EMFILE)
    pool.open("/d/more", create=True)
    assert pool.open_count == disk.open_files == 5
    assert [content(pool, fd) for fd in fds] == [f"/d/{number}" for number in range(5)]
    disk.fail("open", code=errno.EACCES)
    with pytest.raises(PermissionError):
        pool.open("/d/denied", create=True)


@pytest.mark.parametrize("name", ["fsync_dir", "sync_tree", "listdir"])
def test_a_folder_that_is_opened_for_a_moment_gets_a_descriptor_of_the_pools(name):
    disk, pool = disk_and_pool(100)
    filled(pool, [f"/d/{number}" for number in range(5)])
    disk.fail(name, code=errno.EMFILE)
    getattr(pool, name)("/d")
    assert pool.open_count == disk.open_files == 4
    disk.fail(name, code=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        getattr(pool, name)("/d")


class Sharing:
    """Readers, a writer that syncs and a renamer, each on a thread, on more files than there are descriptors."""

    def __init__(self, folder):
        self.pool = PooledFileSystem(OsFileSystem(), 8)
        self.paths = [str(folder / str(number)) for number in range(40)]
        self.fds = filled(self.pool, self.paths)
        self.written = self.pool.open(str(folder / "written"), create=True)
        self.names = self.paths[0], str(folder / "renamed")
        self.most_open = 0

    def repeat(self, work):
        for number in range(300):
            work(number)
            self.most_open = max(self.most_open, self.pool.open_count)

    def read(self, number):
        slot = Random(number).randrange(len(self.fds))
        assert content(self.pool, self.fds[slot]) == self.paths[slot]

    def write(self, number):
        self.pool.pwritev(self.written, [b"%08d" % number], 8 * number)
        self.pool.fsync(self.written)

    def rename(self, number):
        self.pool.rename(*(self.names if number % 2 == 0 else reversed(self.names)))


def test_threads_share_the_descriptors(tmp_path):
    sharing = Sharing(tmp_path)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(sharing.repeat, [sharing.read, sharing.read, sharing.write, sharing.rename]))
    assert sharing.most_open <= 8
    assert sharing.pool.pread(sharing.written, 8 * 300, 0) == b"".join(b"%08d" % number for number in range(300))


def test_what_is_used_gets_a_second_chance(tmp_path):
    """Files that are read once, however many, do not take the descriptor of one that is in use all the time."""
    _, pool = disk_and_pool(4)
    busy, *others = filled(pool, [f"/d/{number}" for number in range(20)])
    opened = 0
    for fd in others:
        content(pool, fd)
        opened += not pool._files[busy].is_at_hand
        content(pool, busy)
    assert opened <= 1


def test_a_file_closed_while_it_is_used_stays_until_then(tmp_path):
    reading, go_on = threading.Event(), threading.Event()

    class SlowDisk(OsFileSystem):
        def pread(self, fd: int, length: int, position: int) -> bytes:
            reading.set()
            go_on.wait()
            return super().pread(fd, length, position)

    pool = PooledFileSystem(SlowDisk(), LIMIT)
    path = str(tmp_path / "file")
    (fd,) = filled(pool, [path])
    found = []
    thread = threading.Thread(target=lambda: found.append(pool.pread(fd, 100, 0)))
    thread.start()
    reading.wait()
    pool.close(fd)
    assert pool.open_count == 1
    go_on.set()
    thread.join()
    assert (found, pool.open_count) == ([path.encode()], 0)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        pool.size(fd)


@pytest.mark.parametrize(
    ("process_limit", "max_connections", "files"),
    [
        (20_000, 10_000, 15_000),
        (1024, 10_000, 768),
        (1_048_576, 10_000, 1_038_512),
        (1024, 100, 860),
        (20, 100, 16),
        (-1, 100, sys.maxsize),
    ],
)
def test_files_get_what_connections_leave_but_three_quarters_at_least(process_limit, max_connections, files):
    assert file_limit(process_limit, max_connections) == files
