"""Rewrites whose tasks run elsewhere, are repeated, or fail after they wrote: nothing doubled, and no file is left."""

from collections import Counter

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.delta.task_table import TaskTable
from millrace_pipelines.warehouse.errors import FolderNotSharedError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.maintenance import compact
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.tasks import THREADS, Threads
from millrace_support.far_tasks import FailingTasks, RepeatedTasks
from millrace_support.loads import PROPERTIES, Loads

FS = OsFileSystem()
FILES, ROWS = 5, 20


def values(first, count):
    """Keys of which each file has one in common with every other, and values that name the offset."""
    numbers = range(first, first + count)
    return {"key": [b"%d" % (n % ROWS or 100 * n) for n in numbers], "value": [b"v%d" % n for n in numbers]}


def table_of_files(directory, properties=PROPERTIES):
    made = Loads(directory, properties)
    for first in range(0, FILES * ROWS, ROWS):
        made.load((first, first + ROWS), range(first, first + ROWS), values=values(first, ROWS))
    return made


def upserted(loads, tasks):
    """Merges newer records of two of the keys, and tells which rows are left by offset."""
    staged = loads.write(loads.directory, [1000, 1001], values={"key": [b"3", b"new"], "value": [b"w", b"w"]})
    try:
        Upsert([staged], FS, expected={}, transactions={}, lineage={}, tasks=tasks).commit(loads.directory)
    finally:
        store_at(loads.directory, FS).remove(staged.name)


def compacted(loads, tasks):
    """Joins files in pairs: two pairs in one commit."""
    largest = max(path.stat().st_size for path in loads.files())
    compact(loads.directory, FS, SystemClock(), target_bytes=2 * largest, tasks=tasks)


OPERATIONS = {
    "upsert": upserted,
    "erase": lambda loads, tasks: erase(loads.directory, [b"3", b"4"], FS, tasks=tasks),
    "compact": compacted,
    "reload": lambda loads, tasks: loads.reload(
        (10, 50), range(10, 50), dead=[], values=values(10, 40), tasks=tasks
    ),
}  # fmt: skip


def offsets_in(directory):
    """Returns how often each offset is in the table's files, read without Millrace."""
    found = [pq.read_table(path, columns=["offset", "value"]).to_pylist() for path in Table.load(directory, FS).files()]
    return Counter((row["offset"], row["value"]) for rows in found for row in rows)


def unnamed_files(directory):
    """Returns the data files below a table that no version names."""
    everything = {name for name in store_at(directory, FS).names() if name.endswith(".parquet")}
    versions = (DeltaTable(directory, version) for version in range(Table.load(directory, FS).version + 1))
    return everything - {name.removeprefix(f"{directory}/") for one in versions for name in one.file_uris()}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("answer", [0, 1])
def test_pieces_that_are_worked_on_twice_leave_one_result_and_no_other_files(operation, answer, tmp_path):
    expected, found = (table_of_files(str(tmp_path / name)) for name in ("expected", "found"))
    before = offsets_in(found.directory)
    tasks = RepeatedTasks(answer=answer)
    OPERATIONS[operation](expected, THREADS)
    OPERATIONS[operation](found, tasks)
    assert tasks.pieces > 1
    assert offsets_in(found.directory) == offsets_in(expected.directory)
    assert (offsets_in(found.directory) == before) == (operation not in {"upsert", "erase"})
    assert unnamed_files(found.directory) == set()
    if operation != "upsert":
        assert audit(found.directory) == []


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("after", [0, 1])
def test_a_task_that_fails_after_it_wrote_leaves_the_table_as_it_was_and_no_files(operation, after, tmp_path):
    loads = table_of_files(str(tmp_path / "table"))
    version, before = Table.load(loads.directory, FS).version, offsets_in(loads.directory)
    with pytest.raises(WarehouseError, match="the task is lost"):
        OPERATIONS[operation](loads, FailingTasks(after))
    assert (Table.load(loads.directory, FS).version, offsets_in(loads.directory)) == (version, before)
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
