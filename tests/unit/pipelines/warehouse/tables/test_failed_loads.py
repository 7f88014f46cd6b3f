"""A load that fails leaves a note in its table's folder, which the next load that succeeds removes."""

import errno
import json
import os
from random import Random

import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.maintenance import vacuum
from millrace_pipelines.warehouse.stores.store import LOG_DIRECTORY
from millrace_pipelines.warehouse.tables.find import (
    FAILED_LOADS_FILE,
    MAX_BYTES,
    MAX_SENTENCE,
    FailedLoads,
    describe_table,
    failures_noted,
    read_failed_loads,
)
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.loads import Loads
from millrace_support.small_tables import find_tables
from millrace_support.unchanged import unchanged

FS = OsFileSystem()
NOW_MS = 1_700_000_000_000
TABLE = "/t"
CHANCES = [None, *map(Random, range(20))]


@pytest.fixture
def table(tmp_path):
    (tmp_path / LOG_DIRECTORY).mkdir()
    return str(tmp_path)


def fail(table, error, fs=FS, clock=None):
    """A load that fails, whose own error comes out of it."""
    with pytest.raises(type(error)) as raised, failures_noted(table, fs, clock or ManualClock(NOW_MS)):
        raise error
    assert raised.value is error


def succeed(table, fs=FS):
    with failures_noted(table, fs, ManualClock()):
        pass


def test_failures_are_counted_until_a_load_succeeds(table):
    assert read_failed_loads(table, FS) is None
    clock = ManualClock(NOW_MS)
    fail(table, LoadFailedError("the first"), clock=clock)
    clock.advance(5_000)
    fail(table, OSError(errno.EIO, "I/O error"), clock=clock)
    found = read_failed_loads(table, FS)
    assert found == FailedLoads(
        times=2, first_ms=NOW_MS, newest_ms=NOW_MS + 5_000, error="OSError", sentence="[Errno 5] I/O error"
    )
    assert found.reason == "OSError: [Errno 5] I/O error"
    succeed(table)
    assert os.listdir(table) == [LOG_DIRECTORY]
    fail(table, KeyError())
    found = read_failed_loads(table, FS)
    assert (found.times, found.reason) == (1, "KeyError")


def test_a_load_that_is_stopped_has_not_failed(table, tmp_path):
    with unchanged(tmp_path), pytest.raises(KeyboardInterrupt), failures_noted(table, FS, ManualClock()):
        raise KeyboardInterrupt


def test_where_there_is_no_table_nothing_is_left(tmp_path):
    with unchanged(tmp_path):
        fail(str(tmp_path), ValueError("no log"))
        fail(str(tmp_path / "nothing"), ValueError("no folder"))
        succeed(str(tmp_path / "nothing"))


def test_a_bucket_is_not_asked(monkeypatch, caplog):
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    fail("s3://bucket/t", ValueError("no"))
    succeed("s3://bucket/t")
    assert read_failed_loads("s3://bucket/t", FS) is None
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("two\n\tlines\r\n", "two lines"),
        ("a \x1b[31mred\x1b[0m \ud800 \x00", "a [31mred [0m"),
        ("x" * 5_000, "x" * (MAX_SENTENCE - 1) + "…"),
        ("\U0001f600" * 5_000, "\U0001f600" * (MAX_SENTENCE - 1) + "…"),
    ],
)
def test_a_sentence_is_one_line_of_a_bounded_length(table, text, sentence):
    fail(table, ValueError(text))
    assert read_failed_loads(table, FS).sentence == sentence
    assert os.path.getsize(os.path.join(table, FAILED_LOADS_FILE)) < MAX_BYTES


WHOLE = {"times": 1, "first_ms": 1, "newest_ms": 1, "error": "E", "sentence": "s"}
GARBAGE = [
    b"",
    json.dumps(WHOLE).encode()[:-9],
    b"\0" * 100,
    b"\xff\xfe",
    b"[]",
    b"7",
    b"null",
    b"{}",
    b"[" * 9_000,
    json.dumps({**WHOLE, "times": "1"}).encode(),
    json.dumps({**WHOLE, "first_ms": None}).encode(),
    json.dumps({**WHOLE, "sentence": 5}).encode(),
    json.dumps({**WHOLE, "sentence": "\ud800"}).encode(),
    json.dumps({**WHOLE, "sentence": "\x1b[31m"}).encode(),
    json.dumps({**WHOLE, "more": 1}).encode(),
    json.dumps({**WHOLE, "sentence": "x" * 20_000}).encode(),
    b'{"times": 1e999, "first_ms": Infinity, "newest_ms": NaN}',
]


@pytest.mark.parametrize("content", GARBAGE)
def test_a_damaged_file_is_said_to_be_and_replaced_or_removed(table, content):
    def damage():
        with open(os.path.join(table, FAILED_LOADS_FILE), "wb") as file:
            file.write(content)

    damage()
    found = read_failed_loads(table, FS)
    assert (found.times, found.first_ms, found.newest_ms) == (None, None, None)
    assert found.reason.startswith(f"{FAILED_LOADS_FILE} in the table's folder can't be read")
    fail(table, ValueError("again"))
    assert read_failed_loads(table, FS).times == 1
    damage()
    succeed(table)
    assert read_failed_loads(table, FS) is None


def test_what_stands_in_its_place_hides_no_error(table, caplog):
    os.mkdir(os.path.join(table, FAILED_LOADS_FILE))
    fail(table, ValueError("the load's own"))
    succeed(table)
    assert [FAILED_LOADS_FILE in one for one in caplog.messages] == [True, True]
    assert "can't be read" in read_failed_loads(table, FS).reason


@pytest.fixture
def disk():
    """A disk with a table, one of whose loads has failed."""
    fs = CrashFileSystem()
    fs.mkdir(f"{TABLE}/{LOG_DIRECTORY}")
    fs.sync_tree("/")
    fail(TABLE, ValueError("first"), fs)
    return fs


def operations(disk, act):
    """How many changes `act` makes."""
    fs = disk.after_kill()
    act(fs)
    return fs.operations


def survivors(disk, act):
    """What is read after the power was cut, or the process died, at each of the changes that `act` makes."""
    for operation in range(1, operations(disk, act) + 1):
        fs = disk.after_kill()
        fs.cut_power_at(operation)
        act(fs)
        for after in (fs.after_kill(), *map(fs.after_cut, CHANCES)):
            yield read_failed_loads(TABLE, after)


def test_a_crash_leaves_what_was_told_before_or_after(disk):
    found = list(survivors(disk, lambda fs: fail(TABLE, ValueError("second"), fs)))
    assert {(one.times, one.sentence) for one in found} == {(1, "first"), (2, "second")}
    found = list(survivors(disk, lambda fs: succeed(TABLE, fs)))
    assert {one and one.times for one in found} == {1, None}


def test_what_was_told_outlives_a_power_cut(disk):
    fail(TABLE, ValueError("second"), disk)
    assert read_failed_loads(TABLE, disk.after_cut()).times == 2
    succeed(TABLE, disk)
    assert read_failed_loads(TABLE, disk.after_cut()) is None


def test_what_a_crash_left_disturbs_no_later_load(disk):
    for operation in range(1, operations(disk, lambda fs: fail(TABLE, ValueError("second"), fs)) + 1):
        fs = disk.after_kill()
        fs.cut_power_at(operation)
        fail(TABLE, ValueError("second"), fs)
        fs = fs.after_kill()
        fail(TABLE, ValueError("third"), fs)
        assert read_failed_loads(TABLE, fs).sentence == "third"
        succeed(TABLE, fs)
        assert read_failed_loads(TABLE, fs) is None


@pytest.mark.parametrize("operation", ["open", "truncate", "pwritev", "fsync", "rename", "fsync_dir"])
def test_a_disk_that_fails_hides_no_error(disk, operation, caplog):
    disk.fail(operation, after=operation == "open")  # the first one reads what is there
    fail(TABLE, ValueError("second"), disk)
    [message] = caplog.messages
    assert message.startswith(f"{TABLE}/{FAILED_LOADS_FILE} tells no more how the newest load ended: [Errno 5]")
    assert disk.open_files == 0
    assert read_failed_loads(TABLE, disk).times == (2 if operation == "fsync_dir" else 1)


def test_a_full_disk_hides_no_error(disk, caplog):
    disk.capacity_bytes = disk.used_bytes + 10
    fail(TABLE, ValueError("second"), disk)
    assert len(caplog.messages) == 1
    assert disk.listdir(TABLE) == [LOG_DIRECTORY, FAILED_LOADS_FILE]
    assert read_failed_loads(TABLE, disk).sentence == "first"


@pytest.mark.parametrize("operation", ["unlink", "fsync_dir"])
def test_a_disk_that_fails_fails_no_load(disk, operation, caplog):
    disk.fail(operation)
    succeed(TABLE, disk)
    assert len(caplog.messages) == 1


def test_those_who_read_and_keep_tables_pass_over_it(tmp_path):
    location = str(tmp_path / "events")
    loads = Loads(location)
    loads.load((0, 3), [0, 1, 2])
    assert describe_table(location).failed_loads is None
    fail(location, ValueError("no"))
    os.utime(os.path.join(location, FAILED_LOADS_FILE), (0, 0))
    assert vacuum(location, FS, retention_hours=0).files == ()
    assert find_tables(str(tmp_path)) == [location]
    assert audit(location) == []
    facts = describe_table(location)
    assert (facts.rows, facts.files, facts.failed_loads.reason) == (3, 1, "ValueError: no")
