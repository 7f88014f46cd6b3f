"""Leases: which operations run on a table, since when, and how far they are."""

import os

import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.stores.leases import (
    LEASE_SUFFIX,
    LEASES_DIRECTORY,
    PROGRESS_BYTES,
    Progress,
    Running,
    lease,
    running,
)
from millrace_support.unchanged import unchanged

FS = OsFileSystem()
LARGEST = 2**63 - 1


@pytest.fixture
def table(tmp_path):
    return str(tmp_path)


def test_an_operation_is_seen_while_it_runs(table, tmp_path):
    assert running(table, FS) == []
    with lease(table, "b", FS), lease(table, "a", FS), unchanged(tmp_path):
        assert [one.operation_id for one in running(table, FS)] == ["a", "b"]
    assert running(table, FS) == []


def test_one_that_has_noted_nothing_began_with_its_lease(table):
    with lease(table, "quiet", FS):
        os.utime(os.path.join(table, LEASES_DIRECTORY, f"quiet{LEASE_SUFFIX}"), (7, 7))
        assert running(table, FS) == [Running("quiet", 7000, None)]


@pytest.mark.parametrize("numbers", [(1, 0, 0, 0), (LARGEST, LARGEST, LARGEST, LARGEST)])
def test_what_is_noted_is_told(table, numbers):
    with lease(table, "load", FS) as held:
        held.note(Progress(5, 1, 2, 3))
        held.note(Progress(*numbers))
        assert running(table, FS) == [Running("load", numbers[0], Progress(*numbers))]
        assert os.path.getsize(os.path.join(table, LEASES_DIRECTORY, f"load{LEASE_SUFFIX}")) == PROGRESS_BYTES


def test_what_is_noted_too_late_goes_nowhere(table, tmp_path):
    with lease(table, "load", FS) as held:
        pass
    with open(tmp_path / "another", "wb"):  # it has the descriptor that the lease had
        held.note(Progress(5, 1, 2, 3))
    assert os.path.getsize(tmp_path / "another") == 0


def test_where_there_is_no_table_there_is_no_lease(tmp_path):
    with lease(str(tmp_path / "nothing"), "load", FS) as held:
        held.note(Progress(5, 1, 2, 3))
    assert not (tmp_path / "nothing").exists()


def test_a_disk_without_room_ends_no_operation(table):
    class Full(OsFileSystem):
        def pwritev(self, fd, buffers, position):
            raise OSError(28, "No space left on device")

    with lease(table, "load", Full()) as held:
        held.note(Progress(5, 1, 2, 3))
        assert [one.progress for one in running(table, FS)] == [None]
