"""The ledger's second copy: it follows the log, gives back what that has lost, and tells copies and set-back tables."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.delta.commits import LEDGER_FILE, read_copy
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import LedgerError, StaleLedgerError, TableRefusedError
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, read_ledger, swap
from millrace_pipelines.warehouse.maintenance import compact
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.tables.open import look_at_tables
from millrace_support.clock import ManualClock
from millrace_support.loads import Loads

FS = OsFileSystem()
RETENTION = "delta.setTransactionRetentionDuration"
LONG_AGO_MS = 1_600_000_000_000


@pytest.fixture
def loads(tmp_path):
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 3), [0, 1, 2])
    loads.load((3, 6), [3, 4, 5])
    return loads


def look(location):
    """What every load does first."""
    return look_at_tables(location, "events", "id-1", None, FS)


def commit_by_hand(location, *actions):
    version = DeltaTable(location).version() + 1
    text = "".join(json.dumps(action) + "\n" for action in actions)
    Path(location, "_delta_log", f"{version:020d}.json").write_text(text)


def set_properties(location, **properties):
    DeltaTable(location).alter.set_table_properties(properties, raise_if_not_exists=False)


def lose_transactions(location):
    """What another engine's checkpoint does where transactions are to be forgotten, and nothing else with them."""
    delta = DeltaTable(location)
    delta.create_checkpoint()
    [checkpoint] = Path(location, "_delta_log").glob(f"{delta.version():020d}.checkpoint.parquet")
    rows = pq.read_table(checkpoint)
    pq.write_table(rows.filter(rows.column("txn").is_null()), checkpoint)
    for commit in Path(location, "_delta_log").glob("*.json"):
        if int(commit.stem) < delta.version():
            commit.unlink()
    assert DeltaTable(location).transaction_version("millrace/id-1/0") is None


def contents(location):
    return {path: path.read_bytes() for path in Path(location).rglob("*") if path.is_file()}


def refused(location, match):
    before = contents(location)
    for act in (look, lambda one: Table.load_to_write(one, FS), lambda one: compact(one, FS, SystemClock())):
        with pytest.raises(LedgerError, match=match):
            act(location)
    assert contents(location) == before


def test_transactions_say_when_they_were_set(tmp_path):
    location = Loads(str(tmp_path / "t")).directory
    table = Table.load(location, FS, ManualClock(LONG_AGO_MS))
    table.commit([], expected={}, transactions={"millrace/id-1/0": 7}, lineage={})
    log = Path(location, "_delta_log", f"{1:020d}.json").read_text().splitlines()
    [txn] = [json.loads(line)["txn"] for line in log if "txn" in line]
    assert txn == {"appId": "millrace/id-1/0", "version": 7, "lastUpdated": LONG_AGO_MS}


def test_the_copy_follows_every_commit(loads):
    store = store_at(loads.directory, FS)
    for end in (7, 9, 12):
        loads.load((end - 1, end), [end - 1])
        table, copy = Table.load(loads.directory, FS), read_copy(store)
        assert (copy.table_id, copy.version) == (table.id, table.version)
        assert copy.transactions == {"millrace/id-1/0": end, "millrace/id-1/0/start": 0}
        assert not list(Path(loads.directory).glob("*.tmp"))


def test_what_the_log_has_lost_the_copy_gives_back(loads):
    lose_transactions(loads.directory)
    assert read_ledger(loads.directory).partitions == {0: LedgerEntry(0, 6)}
    assert look(loads.directory).ledger.partitions == {0: LedgerEntry(0, 6)}
    loads.load((6, 8), [6, 7])
    assert DeltaTable(loads.directory).transaction_version("millrace/id-1/0/start") == 0
    Path(loads.directory, LEDGER_FILE).unlink()
    assert read_ledger(loads.directory).partitions == {0: LedgerEntry(0, 8)}


def test_of_two_loads_after_a_loss_one_commits(loads):
    lose_transactions(loads.directory)
    first, second = (Table.load_to_write(loads.directory, FS) for _ in range(2))
    moves = [swap(ledger_of(table), {0: LedgerEntry(0, 8)}) for table in (first, second)]
    first.commit([], expected=moves[0][0], transactions=moves[0][1], lineage={})
    with pytest.raises(StaleLedgerError):
        second.commit([], expected=moves[1][0], transactions=moves[1][1], lineage={})
    late = Table.load_to_write(loads.directory, FS)
    with pytest.raises(StaleLedgerError):
        late.commit([], expected=moves[1][0], transactions=moves[1][1], lineage={})


def test_a_copy_that_lags_is_led_on_by_the_log(loads):
    """A crash between a commit and the copy leaves it behind."""
    path = Path(loads.directory, LEDGER_FILE)
    before = path.read_bytes()
    loads.load((6, 9), [6, 7, 8])
    path.write_bytes(before)
    assert look(loads.directory).ledger.partitions == {0: LedgerEntry(0, 9)}
    loads.load((9, 10), [9])
    assert read_copy(store_at(loads.directory, FS)).transactions["millrace/id-1/0"] == 10


def test_a_lost_ledger_whose_copy_lags_too_far_is_refused(loads):
    path = Path(loads.directory, LEDGER_FILE)
    before = path.read_bytes()
    loads.load((6, 9), [6, 7, 8])
    path.write_bytes(before)
    set_properties(loads.directory, a="b")
    lose_transactions(loads.directory)
    refused(loads.directory, "the commit 3 is gone from the log; load into another table")


def test_rows_without_a_ledger_are_never_loaded_again(loads):
    lose_transactions(loads.directory)
    Path(loads.directory, LEDGER_FILE).unlink()
    with pytest.raises(LedgerError, match="has rows, but its log does not say which offsets they are"):
        look(loads.directory)


def test_rows_of_a_partition_without_a_ledger_are_never_loaded_again(loads):
    loads.add([0, 1], partition=1)
    with pytest.raises(LedgerError, match="has rows, but its log does not say which offsets they are"):
        look(loads.directory)


def test_while_transactions_are_to_be_forgotten_nothing_is_written(loads):
    table = Table.load(loads.directory, FS, ManualClock(LONG_AGO_MS))
    table.commit([], expected={}, transactions={"millrace/id-1/0": 6}, lineage={})
    set_properties(loads.directory, **{RETENTION: "interval 1 days"})
    assert read_ledger(loads.directory).partitions == {0: LedgerEntry(0, 6)}
    with pytest.raises(TableRefusedError, match=RETENTION):
        look(loads.directory)


@pytest.mark.parametrize("rewrite", [False, True])
def test_a_table_that_was_set_back_is_refused_until_that_is_taken_back(loads, rewrite):
    if rewrite:
        compact(loads.directory, FS, SystemClock())
    newest = DeltaTable(loads.directory).version()
    DeltaTable(loads.directory).restore(1)
    refused(loads.directory, rf"was restored to version 1 .* TO VERSION AS OF {newest}` takes that back")
    DeltaTable(loads.directory).restore(0)
    refused(loads.directory, r"was restored to version 0 ")
    DeltaTable(loads.directory).restore(newest)
    look(loads.directory)
    loads.load((6, 7), [6])


def test_set_back_to_a_version_with_all_offsets_is_no_loss(loads):
    set_properties(loads.directory, a="1")
    newest = DeltaTable(loads.directory).version()
    set_properties(loads.directory, a="2")
    DeltaTable(loads.directory).restore(newest)
    look(loads.directory)


def test_set_back_by_time_is_refused(loads):
    commit_by_hand(
        loads.directory,
        {"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": None, "timestamp": "2026-11-01"}}},
    )
    refused(loads.directory, "was restored to a time ")


def test_a_log_that_was_set_back_is_refused(loads):
    loads.load((6, 7), [6])
    Path(loads.directory, "_delta_log", f"{3:020d}.json").unlink()
    refused(loads.directory, "is at version 2, but was at 3: its log was set back")


def test_a_copied_folder_is_refused_and_a_moved_one_is_not(loads, tmp_path):
    copy = str(shutil.copytree(loads.directory, tmp_path / "copy"))
    refused(copy, rf"is a copy of {loads.directory}, .* remove {copy}/{LEDGER_FILE}")
    look(loads.directory)
    Path(copy, LEDGER_FILE).unlink()
    look(copy)
    Loads(copy).load((6, 7), [6])
    look(copy)
    moved = str(tmp_path / "moved")
    Path(copy).rename(moved)
    look(moved)
    Loads(moved).load((7, 8), [7])
    assert read_copy(store_at(moved, FS)).identity.path == moved


def test_the_copy_of_another_table_is_refused(loads, tmp_path):
    other = Loads(str(tmp_path / "other"))
    other.load((0, 1), [0])
    shutil.copyfile(Path(loads.directory, LEDGER_FILE), Path(other.directory, LEDGER_FILE))
    refused(other.directory, "is of another table")


def test_a_log_that_says_something_else_is_refused(loads):
    commit = Path(loads.directory, "_delta_log", f"{2:020d}.json")
    commit.write_text(commit.read_text().replace('"version":6', '"version":5'))
    refused(loads.directory, "the log says 5 of millrace/id-1/0, where Millrace's newest commit set 6")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"ledger": []}', None])
def test_a_damaged_copy_counts_as_none_and_is_made_again(loads, content):
    path = Path(loads.directory, LEDGER_FILE)
    path.write_bytes(path.read_bytes().replace(b"6", b"9") if content is None else content)
    assert read_copy(store_at(loads.directory, FS)) is None
    assert look(loads.directory).ledger.partitions == {0: LedgerEntry(0, 6)}
    loads.load((6, 7), [6])
    assert read_copy(store_at(loads.directory, FS)).transactions["millrace/id-1/0"] == 7


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_table_from_before_copies_gets_one(loads, checkpointed):
    Path(loads.directory, LEDGER_FILE).unlink()
    if checkpointed:
        DeltaTable(loads.directory).create_checkpoint()
        for version in range(2):
            Path(loads.directory, "_delta_log", f"{version:020d}.json").unlink()
    Table.load(loads.directory, FS).commit([], expected={}, transactions={"millrace/rewrites": 4}, lineage={})
    copy = read_copy(store_at(loads.directory, FS))
    assert copy.transactions == {"millrace/id-1/0": 6, "millrace/id-1/0/start": 0, "millrace/rewrites": 4}


def test_transactions_of_others_are_left_to_them(loads):
    commit_by_hand(loads.directory, {"txn": {"appId": "stream", "version": 2}})
    Path(loads.directory, LEDGER_FILE).unlink()
    loads.load((6, 7), [6])
    assert "stream" not in read_copy(store_at(loads.directory, FS)).transactions


def test_a_new_table_forgets_the_one_before(loads):
    copy = Path(loads.directory, LEDGER_FILE).read_bytes()
    shutil.rmtree(loads.directory)
    Path(loads.directory).mkdir()
    Path(loads.directory, LEDGER_FILE).write_bytes(copy)
    again = Loads(loads.directory)
    again.load((0, 2), [0, 1])
    assert look(loads.directory).ledger.partitions == {0: LedgerEntry(0, 2)}


def test_a_copy_that_cannot_be_written_lags_and_the_commit_stands(loads, caplog):
    class Full(OsFileSystem):
        def rename(self, source, target):
            if target.endswith(LEDGER_FILE):
                raise OSError(28, "No space left on device")
            super().rename(source, target)

    table = Table.load_to_write(loads.directory, Full())
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, 8)})
    table.commit([], expected=expected, transactions=transactions, lineage={})
    assert "the second copy of the ledger stays behind: [Errno 28]" in caplog.text
    assert look(loads.directory).ledger.partitions == {0: LedgerEntry(0, 8)}


def test_other_engines_commits_beside_are_read_past(loads):
    DeltaTable(loads.directory).create_write_transaction(
        [], mode="append", schema=DeltaTable(loads.directory).schema(),
        commit_properties=CommitProperties(), post_commithook_properties=PostCommitHookProperties(),
    )  # fmt: skip
    loads.load((6, 7), [6])
    copy = read_copy(store_at(loads.directory, FS))
    assert (copy.version, copy.transactions["millrace/id-1/0"]) == (4, 7)
