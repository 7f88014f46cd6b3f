"""The table's door: creation, compare-and-swap, what a commit leaves in the log."""

import json
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.delta.commits import LEDGER_FILE
from millrace_pipelines.warehouse.delta.table import CHECKPOINT_INTERVAL, Table
from millrace_pipelines.warehouse.errors import StaleLedgerError, TableNotFoundError
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, read_ledger, swap
from millrace_pipelines.warehouse.rewrite import read_rows
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table import files
from millrace_pipelines.warehouse.table.files import DataFileWriter, NamedFile, remove_files_of_load
from millrace_support.clock import ManualClock

FS = OsFileSystem()
PROPERTIES = {"millrace.topic": "events", "millrace.topicId": "id"}


def make(directory):
    return Table.load_or_create(str(directory), FS, schema=ENVELOPE_SCHEMA, name="events", configuration=PROPERTIES)


def load(directory):
    return Table.load(str(directory), FS)


def rows(offsets, timestamp_ms=1_700_000_000_000):
    columns = {
        "topic": ["events"] * len(offsets),
        "partition": [0] * len(offsets),
        "offset": list(offsets),
        "timestamp": [None if timestamp_ms is None else timestamp_ms * 1000] * len(offsets),
        "key": [None] * len(offsets),
        "value": [b"v"] * len(offsets),
        "headers": [[]] * len(offsets),
    }
    return pa.table(columns, schema=ENVELOPE_SCHEMA)


def write(directory, table, load_id="load"):
    with DataFileWriter(str(directory), load_id, 0, ENVELOPE_SCHEMA, FS) as writer:
        writer.write(table)
        return writer.finish()


def commit(table, file, next_offset):
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, next_offset)})
    return table.commit([file], expected=expected, transactions=transactions, lineage={"to": next_offset})


def test_a_commit_has_the_time_of_the_clock(tmp_path):
    make(tmp_path)
    clock = ManualClock(1_700_000_000_000)
    table = Table.load_to_write(str(tmp_path), FS, clock)
    first = write(tmp_path, rows([0]))
    commit(table, first, 1)
    clock.advance(5)
    table.commit([], expected={}, transactions={}, lineage={}, removed=[NamedFile(name=first.name)])
    log = [json.loads(line) for path in sorted(tmp_path.glob("_delta_log/*.json")) for line in path.open()]
    assert [action["add"]["modificationTime"] for action in log if "add" in action] == [1_700_000_000_000]
    assert [action["remove"]["deletionTimestamp"] for action in log if "remove" in action] == [1_700_000_000_005]


class RecordingFileSystem(OsFileSystem):
    def __init__(self):
        self.synced = []
        self.names = {}

    def open(self, path, *, create=False):
        fd = super().open(path, create=create)
        self.names[fd] = path
        return fd

    def fsync(self, fd):
        super().fsync(fd)
        self.synced.append(self.names[fd])

    def fsync_dir(self, path):
        super().fsync_dir(path)
        self.synced.append(path)


def test_a_new_table_says_what_it_is_for(tmp_path):
    table = make(tmp_path / "t")
    assert (table.version, table.name) == (0, "events")
    assert table.configuration == PROPERTIES | {"delta.checkpointInterval": "20"}
    assert table.schema == ENVELOPE_SCHEMA
    assert table.files() == []
    assert make(tmp_path / "t").version == 0


def test_there_is_no_table(tmp_path):
    with pytest.raises(TableNotFoundError):
        load(tmp_path)
    Table.load_or_create(str(tmp_path / "other"), FS, schema=ENVELOPE_SCHEMA, name="other", configuration={})
    with pytest.raises(TableNotFoundError, match="not one that Millrace loads"):
        read_ledger(str(tmp_path / "other"))


def test_a_folder_that_delta_would_take_for_another_is_refused(tmp_path):
    make(tmp_path / "a b")
    with pytest.raises(WarehouseError, match=r"would take this for .*/a b"):
        load(tmp_path / "a%20b")
    make(tmp_path / "50%")


def test_of_several_that_make_it_at_once_one_does(tmp_path):
    for attempt in range(20):
        barrier, made = threading.Barrier(4), []

        def create(directory=tmp_path / str(attempt), barrier=barrier, made=made):
            barrier.wait()
            made.append(make(directory).version)

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [0, 0, 0, 0]


def test_a_table_in_hand_knows_nothing_of_later_commits(tmp_path):
    table = make(tmp_path / "t")
    before = load(tmp_path / "t")
    commit(table, write(tmp_path / "t", rows(range(3))), 3)
    assert (before.version, before.lineage(), before.files(), ledger_of(before).partitions) == (0, [], [], {})
    before.refresh()
    assert before.lineage() == [{"to": 3, "version": 1}]


def test_rows_ledger_and_lineage_are_one_commit(tmp_path):
    directory = tmp_path / "tables = ä b"
    table = make(directory)
    file = write(directory, rows(range(3)))
    assert commit(table, file, 3) == 1
    again = load(directory)
    assert again.files() == [str(directory / file.name)]
    assert ledger_of(again).partitions == {0: LedgerEntry(0, 3)}
    assert again.lineage() == [{"to": 3, "version": 1}]


def test_of_two_commits_on_one_ledger_one_is_stale(tmp_path):
    make(tmp_path / "t")
    first, second = load(tmp_path / "t"), load(tmp_path / "t")
    commit(first, write(tmp_path / "t", rows(range(3))), 3)
    with pytest.raises(StaleLedgerError) as raised:
        commit(second, write(tmp_path / "t", rows(range(3))), 3)
    assert raised.value.retriable
    assert load(tmp_path / "t").version == 1


def test_a_ledger_that_moved_before_the_load_of_the_table_is_stale(tmp_path):
    table = make(tmp_path / "t")
    commit(table, write(tmp_path / "t", rows(range(3))), 3)
    with pytest.raises(StaleLedgerError, match="is at 3, not at None"):
        load(tmp_path / "t").commit([], expected={"millrace/id/0": None}, transactions={}, lineage={})


def test_a_file_that_is_gone_is_never_committed(tmp_path):
    table = make(tmp_path / "t")
    file = write(tmp_path / "t", rows(range(3)))
    remove_files_of_load(str(tmp_path / "t"), "load", FS)
    with pytest.raises(WarehouseError, match=file.name):
        commit(table, file, 3)
    assert load(tmp_path / "t").version == 0


def test_log_and_checkpoint_are_synced_after_the_commit(tmp_path):
    make(tmp_path / "t")
    fs = RecordingFileSystem()
    table = Table.load(str(tmp_path / "t"), fs)
    for version in range(1, CHECKPOINT_INTERVAL + 2):
        table.commit([], expected={}, transactions={"millrace/id/0": version}, lineage={})
    names = {path.removeprefix(str(tmp_path / "t")) for path in fs.synced}
    assert {f"/_delta_log/{version:020d}.json" for version in range(1, CHECKPOINT_INTERVAL + 2)} <= names
    assert "/_delta_log/_last_checkpoint" in names
    assert any(name.endswith(".checkpoint.parquet") for name in names)
    assert fs.synced[-3] == str(tmp_path / "t" / "_delta_log")
    assert fs.synced[-2].startswith(str(tmp_path / "t" / LEDGER_FILE))
    assert fs.synced[-1] == str(tmp_path / "t")
    assert len(load(tmp_path / "t").lineage()) == CHECKPOINT_INTERVAL + 1


def test_what_others_are_writing_into_the_log_is_not_synced(tmp_path):
    table = make(tmp_path / "t")
    for name in ("_last_checkpoint#1", f"{0:020d}.checkpoint.parquet#2"):
        (tmp_path / "t" / "_delta_log" / name).touch()

    class Strict(OsFileSystem):
        def open(self, path, *, create=False):
            assert "#" not in path, "it may be gone by now"
            return super().open(path, create=create)

    store_at(table.location, Strict()).sync_commit(0)


@pytest.mark.parametrize("timestamp_ms", [None, 1_700_000_000_001, 2**60 // 1000])
def test_a_file_s_statistics_bound_its_rows(tmp_path, timestamp_ms):
    table = make(tmp_path / "t")
    file = write(tmp_path / "t", rows([5, 6, 9], timestamp_ms))
    commit(table, file, 10)
    log = (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    stats = next(json.loads(json.loads(line)["add"]["stats"]) for line in log if '"add"' in line)
    assert stats["numRecords"] == 3
    assert (stats["minValues"]["offset"], stats["maxValues"]["offset"]) == (5, 9)
    shown = "2023-11-14T22:13:20.001Z" if timestamp_ms == 1_700_000_000_001 else None
    assert stats["maxValues"].get("timestamp") == shown


def test_a_file_holds_what_was_written_and_is_synced(tmp_path):
    fs = RecordingFileSystem()
    with DataFileWriter(str(tmp_path), "load", 7, ENVELOPE_SCHEMA, fs) as writer:
        writer.write(rows([1, 2]))
        writer.write(rows([3]))
        file = writer.finish()
    assert file.name.startswith("part-load-00007-")
    assert (file.rows, file.min_offset, file.max_offset) == (3, 1, 3)
    assert pq.read_table(tmp_path / file.name) == rows([1, 2, 3])
    assert fs.synced == [str(tmp_path / file.name), str(tmp_path)]


def test_no_rows_make_no_file(tmp_path):
    assert write(tmp_path, rows([])) is None
    assert list(tmp_path.iterdir()) == []


def test_an_error_takes_the_unfinished_file_away(tmp_path, monkeypatch):
    monkeypatch.setattr("millrace_pipelines.warehouse.table.files.ROW_GROUP_BYTES", 1)

    def fail_after_a_row_group():
        with DataFileWriter(str(tmp_path), "load", 0, ENVELOPE_SCHEMA, FS) as writer:
            writer.write(rows([1]))
            assert len(list(tmp_path.iterdir())) == 1
            raise WarehouseError("the source went away")

    with pytest.raises(WarehouseError, match="went away"):
        fail_after_a_row_group()
    assert list(tmp_path.iterdir()) == []


def test_what_is_read_to_be_written_anew_is_a_row_group_at_most(tmp_path, monkeypatch):
    table = make(tmp_path / "t")
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 1)
    with DataFileWriter(table.location, "load", 0, ENVELOPE_SCHEMA, FS) as writer:
        for offset in range(0, 10, 2):
            writer.write(rows([offset, offset + 1]))
        file = writer.finish()
    blocks = list(read_rows(table, file.name))
    assert [block.column("offset").to_pylist() for block in blocks] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


@pytest.mark.parametrize("ours", [True, False], ids=["rows change", "rows stay"])
@pytest.mark.parametrize("theirs", [True, False], ids=["their rows change", "their rows stay"])
def test_a_file_that_another_engine_replaces_meanwhile_is_not_replaced_again(tmp_path, ours, theirs):
    table = make(tmp_path / "t")
    file, new = (write(tmp_path / "t", rows(range(3)), load_id) for load_id in ("load", "new"))
    commit(table, file, 3)
    stale, other = load(tmp_path / "t"), DeltaTable(tmp_path / "t")
    other.create_write_transaction(
        [RemoveAction(file.name, theirs, 1, 1, {}), AddAction("theirs.parquet", 1, {}, 1, theirs, '{"numRecords": 3}')],
        mode="append", schema=other.schema(), partition_by=[],
    )  # fmt: skip
    removed = [NamedFile(name=file.name)]
    with pytest.raises(StaleLedgerError, match="is not in the table any more"):
        stale.commit([new], expected={}, transactions={}, lineage={}, removed=removed, data_change=ours)
    assert load(tmp_path / "t").file_names() == ["theirs.parquet"]


def test_a_file_is_replaced_beside_rows_that_another_engine_adds(tmp_path):
    table = make(tmp_path / "t")
    file, new = (write(tmp_path / "t", rows(range(3)), load_id) for load_id in ("load", "new"))
    commit(table, file, 3)
    stale, other = load(tmp_path / "t"), DeltaTable(tmp_path / "t")
    other.create_write_transaction(
        [AddAction("theirs.parquet", 1, {}, 1, True, '{"numRecords": 3}')],
        mode="append", schema=other.schema(), partition_by=[],
    )  # fmt: skip
    stale.commit([new], expected={}, transactions={}, lineage={}, removed=[NamedFile(name=file.name)])
    assert load(tmp_path / "t").file_names() == sorted([new.name, "theirs.parquet"])
