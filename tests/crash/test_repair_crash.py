"""A repair whose power is cut at any operation leaves the file as it was or the repaired one, and can be run again."""

from random import Random

import pytest

from millrace.fs import read_file
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage.filenames import segment_file_name
from millrace_broker.storage.recovery.offline_logs import check_segment, repair
from millrace_support.crash_fs import CrashFileSystem

FOLDER = "/data/t-0"
LOG = f"{FOLDER}/{segment_file_name(0, '.log')}"
INDEX = f"{FOLDER}/{segment_file_name(0, '.index')}"
CHECKPOINT = "/data/recovery-point-offset-checkpoint"
FIRST, LOST, LAST = (encode_batch([NewRecord(b"value")] * 3, base_offset=offset) for offset in (0, 3, 6))
DAMAGED = FIRST + bytes(len(LOST)) + LAST


def put(fs, path, content):
    fd = fs.open(path, create=True)
    fs.pwritev(fd, [content], 0)
    fs.fsync(fd)
    fs.close(fd)


def damaged_disk():
    """A data folder with one damaged segment, all of it synced."""
    fs = CrashFileSystem()
    fs.mkdir(FOLDER)
    put(fs, LOG, DAMAGED)
    put(fs, INDEX, (8).to_bytes(4, "big") + (len(FIRST) + len(LOST)).to_bytes(4, "big"))
    put(fs, CHECKPOINT, b"0\n2\nother 0 7\nt 0 2\n")
    for folder in (FOLDER, "/data", "/"):
        fs.fsync_dir(folder)
    return fs.after_cut()


@pytest.fixture
def damaged():
    return damaged_disk()


def check_repaired(fs):
    assert read_file(fs, LOG) == FIRST + LAST
    assert not fs.exists(INDEX)
    assert read_file(fs, CHECKPOINT) == b"0\n2\nother 0 7\nt 0 9\n"
    originals = [name for name in fs.listdir(FOLDER) if name.endswith((".damaged", ".damaged.2"))]
    assert originals
    assert all(read_file(fs, f"{FOLDER}/{name}") == DAMAGED for name in originals)


def test_a_repair_is_whole(damaged):
    (done,) = repair(damaged, [LOG])
    assert (done.original, done.dropped_bytes) == (f"{LOG}.damaged", len(LOST))
    assert damaged.open_files == 0
    check_repaired(damaged.after_cut())
    assert repair(damaged, [LOG]) == []


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_the_power_goes_at_any_operation(damaged, seed):
    for cut_at in damaged.each_change(lambda: repair(damaged, [LOG])):
        left = damaged.after_cut(None if seed is None else Random(seed * 1000 + cut_at))
        content = read_file(left, LOG)
        assert content in {DAMAGED, FIRST + LAST}
        if content != DAMAGED:
            assert check_segment(left, LOG).findings == ()
        repair(left, [LOG])
        check_repaired(left)


def test_a_raised_recovery_point_speaks_for_synced_bytes_only():
    fs, later = damaged_disk(), f"{FOLDER}/{segment_file_name(9, '.log')}"
    content = encode_batch([NewRecord(b"value")] * 3, base_offset=9)
    fs.pwritev(fs.open(later, create=True), [content], 0)
    fs.fsync_dir(FOLDER)
    repair(fs, [LOG])
    left = fs.after_cut()
    assert read_file(left, CHECKPOINT) == b"0\n2\nother 0 7\nt 0 12\n"
    assert read_file(left, later) == content
