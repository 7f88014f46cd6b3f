"""Rewrites and audits whose tasks run elsewhere, are repeated, or fail after they wrote: as in threads here."""

import pytest

from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit, audit_newest_load, repeated_keys
from millrace_pipelines.warehouse.completeness.contents import Contents
from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import FolderNotSharedError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.task_table import TaskTable
from millrace_pipelines.warehouse.tasks import THREADS, Threads
from millrace_support.far_tasks import FailingTasks, RepeatedTasks
from millrace_support.loads import PROPERTIES, Loads
from millrace_support.rewrites import FILES, REWRITES, ROWS, rows_in, table_of_files, unnamed_files

FS = OsFileSystem()


@pytest.mark.parametrize("operation", REWRITES)
@pytest.mark.parametrize("answer", [0, 1])
def test_pieces_that_are_worked_on_twice_leave_one_result_and_no_other_files(operation, answer, tmp_path):
    expected, found = (table_of_files(str(tmp_path / name)) for name in ("expected", "found"))
    before = rows_in(found.directory)
    tasks = RepeatedTasks(answer=answer)
    REWRITES[operation](expected, THREADS)
    REWRITES[operation](found, tasks)
    assert tasks.pieces > 1
    assert rows_in(found.directory) == rows_in(expected.directory)
    assert (rows_in(found.directory) == before) == (operation not in {"upsert", "erase"})
    assert unnamed_files(found.directory) == set()
    if operation != "upsert":
        assert audit(found.directory) == []


@pytest.mark.parametrize("operation", REWRITES)
@pytest.mark.parametrize("after", [0, 1])
def test_a_task_that_fails_after_it_wrote_leaves_the_table_as_it_was_and_no_files(operation, after, tmp_path):
    loads = table_of_files(str(tmp_path / "table"))
    version, before = Table.load(loads.directory, FS).version, rows_in(loads.directory)
    with pytest.raises(WarehouseError, match="the task is lost"):
        REWRITES[operation](loads, FailingTasks(after))
    assert (Table.load(loads.directory, FS).version, rows_in(loads.directory)) == (version, before)
    assert {name for name in unnamed_files(loads.directory) if not name.startswith("part-load-")} == set()


def test_an_erasure_elsewhere_counts_letters_of_a_load_that_has_not_ended(tmp_path):
    loads = table_of_files(str(tmp_path / "table"))
    loads.load((100, 104), [100], dead=[101, 102], values={"key": [b"3"], "value": [b"v"]})
    reports = [erase(loads.directory, [b"3"], FS, dry_run=dry, tasks=RepeatedTasks()) for dry in (True, False)]
    assert [(report.rows, report.dead_letters, report.left) for report in reports] == [(6, 0, 0), (6, 0, 0)]
    assert unnamed_files(dead_letters_dir(loads.directory)) == set()


def test_a_machine_that_does_not_see_the_folder_says_so_and_writes_nothing(tmp_path):
    loads = table_of_files(str(tmp_path / "table"))
    table = Table.load(loads.directory, FS)
    assert TaskTable.of(table, FS).store.location == loads.directory
    (tmp_path / "table").rename(tmp_path / "elsewhere")
    Loads(loads.directory)  # another table under the same path
    for operation_id in (None, "operation"):
        with pytest.raises(FolderNotSharedError, match="does not see"):
            TaskTable.of(table, FS, operation_id).store  # noqa: B018


def test_threads_yield_in_the_order_of_pieces_and_hold_a_bounded_number_of_them():
    given, taken = [], []

    def pieces():
        for piece in range(200):
            given.append(piece)
            yield piece

    for result in Threads().run(lambda piece: piece * 2, pieces()):
        taken.append(result)
        assert len(given) - len(taken) <= 4 * Threads().at_once
    assert taken == [piece * 2 for piece in range(200)]


def test_after_an_error_threads_begin_no_further_piece():
    begun = []

    def work(piece):
        begun.append(piece)
        if piece == 0:
            raise WarehouseError("the first fails")

    with pytest.raises(WarehouseError, match="the first fails"):
        list(Threads().run(work, range(1000)))
    assert len(begun) <= 4 * Threads().at_once


def damaged(loads):
    path = max(loads.files(), key=lambda file: file.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


UPSERT = PROPERTIES | {"millrace.mode": "upsert"}
FAULTS = {
    "a file that is gone": lambda loads: loads.files()[0].unlink(),
    "a file with other bytes": damaged,
    "rows twice": lambda loads: loads.add([3, 4, 25], values={"key": [b"a", b"a", b"b"], "value": [b"x"] * 3}),
    "rows of no load": lambda loads: loads.add(range(500, 510)),
    "rows of a partition that the ledger doesn't know": lambda loads: loads.add([1, 2], partition=7),
    "rows that are not there": lambda loads: loads.remove(which=1),
    "dead letters twice": lambda loads: (
        loads.load((100, 110), range(100, 105), dead=range(105, 110)),
        loads.add([105, 106], address=dead_letters_dir(loads.directory)),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("properties", [PROPERTIES, UPSERT], ids=["append", "upsert"])
def test_an_audit_elsewhere_finds_what_one_in_threads_finds(fault, properties, tmp_path):
    loads = table_of_files(str(tmp_path / "table"), properties)
    FAULTS[fault](loads)
    tasks = RepeatedTasks()
    found = audit(loads.directory, tasks=tasks)
    deep = audit_stored_files(loads.directory, tasks=tasks)
    assert tasks.pieces > FILES
    assert [*found, *deep.findings]
    assert found == audit(loads.directory)
    assert deep == audit_stored_files(loads.directory)
    assert audit_newest_load(loads.directory, tasks=tasks) == audit_newest_load(loads.directory)


def test_keys_that_two_rows_have_are_found_in_each_of_several_passes(tmp_path):
    loads = table_of_files(str(tmp_path / "table"), UPSERT)
    contents = Contents(Table.load(loads.directory, FS), FS, tasks=RepeatedTasks())
    for keys_per_pass in (7, 50, 1000):
        repeated = repeated_keys(contents, keys_per_pass)
        assert (repeated.number, len(repeated.first)) == (ROWS - 1, 6)
        assert list(repeated.first) == sorted(b"%d" % number for number in range(1, ROWS))[:6]
