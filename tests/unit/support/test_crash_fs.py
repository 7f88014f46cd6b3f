import errno
from concurrent.futures import ThreadPoolExecutor
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


def test_a_file_has_the_time_of_its_machine() -> None:
    fs = CrashFileSystem(now_ms=lambda: 1000)
    for each in (fs, fs.after_cut(), fs.after_kill()):
        fd = each.open("/file", create=True)
        assert each.modified_ms(fd) == 1000
        each.set_modified_ms(fd, 2000)
        each.pwritev(fd, [b"bytes"], 0)
        assert each.modified_ms(fd) == 1000


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
    outcomes = set()
    for _ in fs.each_change(lambda: write_file_durably(fs, "/file", b"new")):
        for seed in range(10):
            outcomes.add(read_file(fs.after_cut(Random(seed)), "/file"))
    assert outcomes == {b"old", b"new"}


def copied_and_renamed(fs: CrashFileSystem) -> None:
    """Makes each kind of change."""
    fs.mkdir("/folder")
    fd = fs.open("/folder/a", create=True)
    fs.pwritev(fd, [b"content"], 0)
    fs.fsync(fd)
    fs.pwritev(fd, [b"CON"], 0)
    fs.truncate(fd, 6)
    fs.close(fd)
    fs.rename("/folder/a", "/folder/b")
    fs.fsync_dir("/folder")
    fs.unlink("/folder/b")
    fs.rmdir("/folder")
    fs.sync_tree("/")


def content(fs: CrashFileSystem, path: str = "/") -> dict[str, object]:
    """Returns all that is below a folder."""
    found: dict[str, object] = {}
    for name in fs.listdir(path):
        below = f"{path.rstrip('/')}/{name}"
        try:
            found[name] = read_file(fs, below)
        except IsADirectoryError:
            found[name] = content(fs, below)
    return found


@pytest.mark.parametrize("capacity_bytes", [None, 100])
def test_before_each_change_the_disk_is_as_a_cut_there_leaves_it(capacity_bytes: int | None) -> None:
    fs = CrashFileSystem(capacity_bytes=capacity_bytes)
    changes = []
    for operation in fs.each_change(lambda: copied_and_renamed(fs)):
        changes.append(operation)
        cut = CrashFileSystem(capacity_bytes=capacity_bytes)
        cut.cut_power_at(operation)
        with pytest.raises(PowerCutError):
            copied_and_renamed(cut)
        for seed in range(5):
            assert content(fs.after_cut(Random(seed))) == content(cut.after_cut(Random(seed)))
        assert content(fs.after_kill()) == content(cut.after_kill())
    assert changes == list(range(1, fs.operations + 1))
    assert content(fs) == {}


def test_the_power_is_cut_where_a_test_looks_no_further() -> None:
    fs = CrashFileSystem()
    changes = fs.each_change(lambda: copied_and_renamed(fs))
    assert [next(changes), next(changes)] == [1, 2]
    changes.close()
    with pytest.raises(PowerCutError):
        fs.listdir("/")
    assert content(fs.after_kill()) == {"folder": {}}


def test_a_life_that_fails_or_changes_nothing_is_an_error() -> None:
    fs = CrashFileSystem()
    fs.fail("rename", code=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        list(fs.each_change(lambda: copied_and_renamed(fs)))
    with pytest.raises(AssertionError, match="there was no change"):
        list(fs.each_change(lambda: fs.exists("/")))


def made_by_threads(fs: CrashFileSystem) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fs.mkdir, [f"/{number}" for number in range(8)]))


def test_a_life_of_several_threads_is_looked_at_before_each_change() -> None:
    fs = CrashFileSystem()
    seen = [len(content(fs.after_kill())) for _ in fs.each_change(lambda: made_by_threads(fs))]
    assert seen == sorted(seen)
    assert len(seen) == len(content(fs)) == 8


def test_a_cut_ends_a_life_of_several_threads() -> None:
    fs = CrashFileSystem()
    changes = fs.each_change(lambda: made_by_threads(fs))
    next(changes)
    changes.close()
    assert content(fs.after_kill()) == {}


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
