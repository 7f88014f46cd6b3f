"""The lock of a data folder keeps out whoever locks as Java does, and is kept out by it."""

import subprocess
import sys

import pytest

from millrace.fs import OsFileSystem
from millrace_ops.cli.dump import ReadOnlyFileSystem

# What java.nio's FileChannel.tryLock asks of the system; says so, and holds it until its standard input ends.
LOCK_LIKE_JAVA = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("taken")
else:
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / ".lock"
    file.touch()
    return str(file)


def java_like(path):
    return subprocess.Popen(
        [sys.executable, "-c", LOCK_LIKE_JAVA, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("fs", [OsFileSystem(), ReadOnlyFileSystem()], ids=["broker", "offline check"])
def test_ours_keeps_theirs_out(fs, path):
    fd = fs.open(path)
    fs.lock(fd)
    with java_like(path) as other:
        assert other.communicate(timeout=60)[0] == "taken\n"
    fs.close(fd)
    with java_like(path) as other:
        assert other.communicate(timeout=60)[0] == "locked\n"


@pytest.mark.parametrize("fs", [OsFileSystem(), ReadOnlyFileSystem()], ids=["broker", "offline check"])
def test_theirs_keeps_ours_out(fs, path):
    fd = fs.open(path)
    with java_like(path) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError):
            fs.lock(fd)
        other.communicate(timeout=60)
    fs.lock(fd)
    fs.close(fd)


def test_ours_keeps_ours_out_in_one_process(path):
    fs = OsFileSystem()
    first, second = fs.open(path), fs.open(path)
    fs.lock(first)
    with pytest.raises(BlockingIOError):
        fs.lock(second)
    fs.close(second)
    fs.close(first)
