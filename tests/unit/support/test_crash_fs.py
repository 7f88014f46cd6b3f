import errno
from random import Random

import pytest

from millrace.fs import FileSystem, OsFileSystem, read_file, write_file_durably
from millrace_support.crash_fs import CrashFileSystem, PowerCutError


@pytest.fixture(params=["memory", "os"])
def place(request: pytest.FixtureRequest, tmp_path) -> tuple[FileSystem, str]:
    return (CrashFileSystem(), "") if request.param == "memory" else (OsFileSystem(), str(tmp_path))


def test_both_file_systems_agree(place: tuple[FileSystem, str]) -> None:
    fs, root = place
    fs.mkdir(f"{root}/a/b")
    fs.mkdir(f"{root}/a/b")
    fd = fs.open(f"{root}/a/b/file", create=True)
    assert fs.pwritev(fd, [b"hello ", memoryview(b"world")], 2) == 11
    assert (fs.size(fd), fs.pread(fd, 100, 0), fs.pread(fd, 3, 4)) == (13, b"\0\0hello world", b"llo")
    fs.truncate(fd, 4)
    fs.truncate(fd, 6)
    assert fs.pread(fd, 100, 0) == b"\0\0he\0\0"
    fs.fsync(fd)
    fs.rename(f"{root}/a/b/file", f"{root}/a/b/other")
    fs.fsync_dir(f"{root}/a/b")
    assert fs.listdir(f"{root}/a/b") == ["other"]
    assert not fs.exists(f"{root}/a/b/file")
    assert fs.exists(f"{root}/a/b/other")
    with pytest.raises(OSError):
        fs.rmdir(f"{root}/a/b")
    fs.unlink(f"{root}/a/b/other")
    assert fs.pread(fd, 2, 2) == b"he"
    fs.close(fd)
    fs.rmdir(f"{root}/a/b")
    assert fs.listdir(f"{root}/a") == []


def test_both_file_systems_miss_the_same(place: tuple[FileSystem, str]) -> None:
    fs, root = place
    for operation in (fs.open, fs.unlink, fs.listdir, fs.fsync_dir):
        with pytest.raises(FileNotFoundError):
            operation(f"{root}/missing")
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{root}/missing", f"{root}/other")


def test_a_file_says_when_it_was_last_written(place: tuple[FileSystem, str]) -> None:
    fs, root = place
    fd = fs.open(f"{root}/file", create=True)
    for change in (lambda: fs.pwritev(fd, [b"a"], 0), lambda: fs.truncate(fd, 5)):
        fs.set_modified_ms(fd, 1_600_000_000_123)
        fs.fsync(fd)
        assert fs.modified_ms(fd) == 1_600_000_000_123
        change()
        assert fs.modified_ms(fd) > 1_700_000_000_000
    fs.close(fd)


def test_a_cut_takes_a_time_that_was_not_synced() -> None:
    fs = CrashFileSystem()
    fd = fs.open("/file", create=True)
    fs.set_modified_ms(fd, 1000)
    fs.fsync(fd)
    fs.fsync_dir("/")
    fs.set_modified_ms(fd, 2000)
    for after, modified_ms in ((fs.after_cut(), 1000), (fs.after_cut(Random(1)), 1000), (fs.after_kill(), 2000)):
        assert after.modified_ms(after.open("/file")) == modified_ms


def test_a_lock_is_held_once_until_it_is_closed(place: tuple[FileSystem, str]) -> None:
    fs, root = place
    first, second = fs.open(f"{root}/lock", create=True), fs.open(f"{root}/lock")
    fs.lock(first)
    with pytest.raises(BlockingIOError):
        fs.lock(second)
    fs.close(first)
    fs.lock(second)
    fs.close(second)


def test_a_cut_takes_bytes_and_names_that_were_not_synced() -> None:
    fs = CrashFileSystem()
    fd = fs.open("/kept", create=True)
    fs.pwritev(fd, [b"synced"], 0)
    fs.fsync(fd)
    fs.fsync_dir("/")
    fs.pwritev(fd, [b"lost"], 6)
    fs.fsync(fs.open("/nameless", create=True))
    fs.unlink("/kept")
    after = fs.after_cut()
    assert after.listdir("/") == ["kept"]
    assert read_file(after, "/kept") == b"synced"
    killed = fs.after_kill()
    assert killed.listdir("/") == ["nameless"]


def test_chance_leaves_any_mixture_of_old_and_new() -> None:
    fs = CrashFileSystem()
    fd = fs.open("/file", create=True)
    fs.pwritev(fd, [b"ab"], 0)
    fs.fsync(fd)
    fs.fsync_dir("/")
    fs.pwritev(fd, [b"cd"], 2)
    contents = {read_file(fs.after_cut(Random(seed)), "/file") for seed in range(60)}
    assert {b"ab", b"abc", b"abcd", b"ab\0\0"} <= contents


def test_a_durable_write_leaves_the_old_content_or_the_new_wherever_it_is_cut() -> None:
    fs = CrashFileSystem()
    write_file_durably(fs, "/file", b"old")
    start = fs.operations
    write_file_durably(fs, "/file", b"new")
    outcomes = set()
    for cut_at in range(start + 1, fs.operations + 1):
        for seed in range(10):
            again = CrashFileSystem()
            write_file_durably(again, "/file", b"old")
            again.cut_power_at(cut_at)
            with pytest.raises(PowerCutError):
                write_file_durably(again, "/file", b"new")
            outcomes.add(read_file(again.after_cut(Random(seed)), "/file"))
    assert outcomes == {b"old", b"new"}


def test_an_operation_fails_when_it_is_told_to() -> None:
    fs = CrashFileSystem()
    fs.fail("fsync", after=1, code=errno.EIO)
    fd = fs.open("/file", create=True)
    fs.fsync(fd)
    with pytest.raises(OSError, match="Input/output error"):
        fs.fsync(fd)
    fs.fsync(fd)


def test_a_full_disk_takes_what_fits() -> None:
    fs = CrashFileSystem(capacity_bytes=5)
    fd = fs.open("/file", create=True)
    fs.pwritev(fd, [b"abc"], 0)
    with pytest.raises(OSError) as failure:
        fs.pwritev(fd, [b"defg"], 3)
    assert failure.value.errno == errno.ENOSPC
    assert fs.pread(fd, 10, 0) == b"abcde"
    fs.pwritev(fd, [b"ABCDE"], 0)
