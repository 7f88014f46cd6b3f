"""Commits to an Iceberg table of an embedded catalog, beside other loaders, other engines and lost answers.

Tests that name an issue show what it reports of another writer, and that it does not happen here.
"""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.errors import (
    NOT_COMMITTED,
    CatalogError,
    LedgerError,
    StaleLedgerError,
    TableNotFoundError,
    TableRefusedError,
)
from millrace_pipelines.warehouse.formats import is_newest, load_if_there, load_table, load_to_write
from millrace_pipelines.warehouse.iceberg import catalogs, requests, table
from millrace_pipelines.warehouse.iceberg.written_manifests import MERGED_AT
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, check_rows_have_ledger, ledger_of, swap
from millrace_pipelines.warehouse.rewrite import files_removed_on
from millrace_pipelines.warehouse.tables.open import look_at_tables
from millrace_support.iceberg_tables import (
    LostAnswerError,
    commit_range,
    commits_pass,
    each_once,
    load_range,
    made,
    offsets,
    other_engine,
    rows_of,
    written,
)

FS = OsFileSystem()


@pytest.fixture
def address(tmp_path):
    made(f"iceberg:{tmp_path}/lake/shop.events")
    return f"iceberg:{tmp_path}/lake/shop.events"


def entries(address):
    return ledger_of(load_table(address, FS)).partitions


def test_commits_follow_one_another_and_say_what_they_did(address):
    assert load_range(address, 10) == 1
    assert load_range(address, 5, partition=1) == 2
    assert load_range(address, 25) == 3
    found = load_table(address, FS)
    assert offsets(found) == each_once(25, 5)
    assert entries(address) == {0: LedgerEntry(0, 25), 1: LedgerEntry(0, 5)}
    assert [(one["version"], one["ranges"][0]["until_offset"]) for one in found.lineage()] == [(1, 10), (2, 5), (3, 25)]
    assert [(one.version, one.operation) for one in found.commits_after(1, 10)] == [(2, "append"), (3, "append")]
    assert sorted(name for one in found.commits_after(0, 10) for name in one.file_names) == found.file_names()
    assert is_newest(address, 3, FS)
    assert not is_newest(address, 2, FS)
    check_rows_have_ledger(found)


def test_manifests_say_rows_nulls_and_bounds(address):
    load_range(address, 10)
    [action] = load_table(address, FS).add_actions().to_pylist()
    assert action["num_records"] == 10
    assert (action["min.offset"], action["max.offset"], action["null_count.offset"]) == (0, 9, 0)
    assert (action["min.timestamp"], action["null_count.timestamp"]) == (None, 10)
    assert action["size_bytes"] == os.path.getsize(f"{load_table(address, FS).location}/{action['path']}")


def test_a_range_that_another_load_has_committed_is_refused_and_its_files_go(address):
    """Kafka Connect doubles rows after a rebalance or a restart (apache/iceberg 17340, 16282, 13763)."""
    late = load_to_write(address, FS)
    file = written(late, "late", 0, 0, 10)
    assert load_range(address, 10) == 1
    expected, transactions = swap(ledger_of(late), {0: LedgerEntry(0, 10)})
    with pytest.raises(StaleLedgerError), files_removed_on(NOT_COMMITTED, [late.location], "late", FS):
        late.commit([file], expected=expected, transactions=transactions, lineage={})
    assert offsets(load_table(address, FS)) == each_once(10)
    assert not list(Path(late.location).glob("part-late-*"))


def test_a_late_commit_neither_hides_nor_doubles_what_came_before(address):
    """A coordinator that was replaced commits late, and what its successor committed is lost (apache/iceberg 17551)."""
    late = load_to_write(address, FS)
    load_range(address, 10, partition=1)
    assert commit_range(late, 7) == 2
    assert offsets(load_table(address, FS)) == each_once(7, 10)
    assert entries(address) == {0: LedgerEntry(0, 7), 1: LedgerEntry(0, 10)}


def test_no_commit_is_dropped_under_contention(address):
    """delta-rs drops 142 of 2,000 commits under contention (delta-rs 3736)."""
    commits, loaders = 8, 3

    def load(partition):
        for number in range(commits):
            load_range(address, 10 * (number + 1), partition=partition, load_id=f"load{partition}")

    for partition in range(loaders):
        load_range(address, 5, partition=partition)
    with ThreadPoolExecutor(loaders) as pool:
        list(pool.map(load, range(loaders)))
    found = load_table(address, FS)
    assert offsets(found) == each_once(*[10 * commits] * loaders)
    assert len(found.lineage()) == (commits + 1) * loaders


def lost(answers):
    """Makes commits, and loses the answers to the first ones; returns how many were asked for."""
    asked = []

    def act(commit):
        asked.append(commit())
        if len(asked) <= answers:
            raise LostAnswerError
        return asked[-1]

    return asked, act


def test_an_answer_that_is_lost_stands_for_its_commit(address):
    """Flink writes again what a lost answer has committed (apache/iceberg 14425)."""
    asked, act = lost(answers=1)
    with commits_pass(act):
        assert load_range(address, 10) == 1
    assert len(asked) == 1
    assert offsets(load_table(address, FS)) == each_once(10)
    assert load_range(address, 20) == 2


def test_a_lost_answer_stands_for_its_commit_where_others_expired_the_snapshot_since(address):
    loaded = load_to_write(address, FS)
    file = written(loaded, "load", 0, 0, 10)
    expected, transactions = swap(ledger_of(loaded), {0: LedgerEntry(0, 10)})
    tries = []

    def act(commit):
        tries.append(commit)
        made_now = commit()
        if len(tries) == 1:
            other_engine(address).append(rows_of(7, 0, 1))
            expire_all_but_the_newest(address)
            raise LostAnswerError
        return made_now

    with commits_pass(act), files_removed_on(NOT_COMMITTED, [loaded.location], "load", FS):
        loaded.commit([file], expected=expected, transactions=transactions, lineage={"kind": "load"})
    assert offsets(load_table(address, FS)) == each_once(10) + each_once(*[0] * 7, 1)
    assert entries(address) == {0: LedgerEntry(0, 10)}


def test_a_request_that_is_lost_is_made_again(address):
    tries = []

    def act(commit):
        tries.append(commit)
        if len(tries) == 1:
            raise LostAnswerError
        return commit()

    with commits_pass(act):
        assert load_range(address, 10) == 1
    assert len(tries) == 2
    assert offsets(load_table(address, FS)) == each_once(10)


@pytest.mark.parametrize("arrives", ["before the second request", "after it"])
def test_of_two_requests_for_one_commit_only_one_is_made(address, arrives):
    tries = []

    def act(commit):
        tries.append(commit)
        if len(tries) == 1:
            raise LostAnswerError
        if arrives.startswith("before"):
            tries[0]()
            return commit()
        made = commit()
        with pytest.raises(CommitFailedException):
            tries[0]()
        return made

    with commits_pass(act):
        assert load_range(address, 10) == 1
    assert offsets(load_table(address, FS)) == each_once(10)
    assert entries(address) == {0: LedgerEntry(0, 10)}


def test_no_file_goes_while_it_is_not_known_whether_the_commit_is_made(address, monkeypatch):
    monkeypatch.setattr(catalogs.load_patiently.retry, "stop", lambda _: True)
    loaded = load_to_write(address, FS)
    file = written(loaded, "unknown", 0, 0, 10)
    expected, transactions = swap(ledger_of(loaded), {0: LedgerEntry(0, 10)})

    def act(commit):
        commit()
        monkeypatch.setattr(catalogs, "load", down)
        raise LostAnswerError

    def down(_):
        raise CatalogError("the catalog is down")

    with (
        commits_pass(act),
        pytest.raises(WarehouseError, match="did not answer") as raised,
        files_removed_on(NOT_COMMITTED, [loaded.location], "unknown", FS),
    ):
        loaded.commit([file], expected=expected, transactions=transactions, lineage={})
    assert not isinstance(raised.value, NOT_COMMITTED)
    monkeypatch.undo()
    assert offsets(load_table(address, FS)) == each_once(10)


def test_a_refusal_after_a_lost_request_is_no_proof_that_it_was_not_made(address, monkeypatch):
    """What forbids the next request does not stop the one before, while `main` has not moved."""
    loaded = load_to_write(address, FS)
    file = written(loaded, "open", 0, 0, 10)

    def act(commit):
        with other_engine(address).transaction() as change:
            change.set_properties({"some": "property"})
        monkeypatch.setattr(table.Table, "check_access", refused)
        raise LostAnswerError

    def refused(self, access):
        raise TableRefusedError("another engine forbids it")

    with commits_pass(act), pytest.raises(WarehouseError, match="did not answer") as raised:
        loaded.commit([file], expected={}, transactions={}, lineage={})
    assert not isinstance(raised.value, NOT_COMMITTED)


def test_a_new_loader_goes_on_by_the_table_alone(address):
    """Flink's identity is the job's id: a new one doubles (apache/iceberg 16008) or loses silently (10892)."""
    for number in range(5):
        load_range(address, 10 * (number + 1), load_id=f"job-{number}")
    assert offsets(load_table(address, FS)) == each_once(50)


def test_snapshots_of_other_engines_move_no_offset(address):
    load_range(address, 10)
    other = other_engine(address)
    other.append(rows_of(7, 0, 3))
    other.overwrite(rows_of(0, 0, 4), overwrite_filter="partition = 0")
    found = load_table(address, FS)
    assert entries(address) == {0: LedgerEntry(0, 10)}
    assert [one["version"] for one in found.lineage()] == [1]
    assert load_range(address, 20) > 2
    left = [*((0, n) for n in (*range(4), *range(10, 20))), *((7, n) for n in range(3))]
    assert offsets(load_table(address, FS)) == Counter(left)
    assert [kind.operation for kind in load_table(address, FS).commits_after(1, 10)][-1] == "append"


def test_what_a_rollback_took_is_loaded_again(address):
    load_range(address, 10)
    load_range(address, 20)
    load_range(address, 30)
    first = [one for one in other_engine(address).metadata.snapshots if one.sequence_number == 1]
    other_engine(address).manage_snapshots().rollback_to_snapshot(first[0].snapshot_id).commit()
    assert entries(address) == {0: LedgerEntry(0, 10)}
    assert load_table(address, FS).version == 1
    version = load_range(address, 15)
    found = load_table(address, FS)
    assert version == found.version == 4
    assert offsets(found) == each_once(15)
    assert [one["version"] for one in found.lineage()] == [1, 4]
    assert [one.version for one in found.commits_after(0, 10)] == [1, 4]
    assert found.commit_of(3).operation == "rolled back"


def test_a_rollback_to_another_engines_snapshot_goes_back_to_the_offsets_before_it(address):
    load_range(address, 10)
    other_engine(address).append(rows_of(7, 0, 3))
    theirs = other_engine(address).metadata.current_snapshot_id
    load_range(address, 20)
    other_engine(address).manage_snapshots().rollback_to_snapshot(theirs).commit()
    assert entries(address) == {0: LedgerEntry(0, 10)}
    load_range(address, 15)
    assert offsets(load_table(address, FS)) == each_once(15) + each_once(*[0] * 7, 3)
    assert [one["version"] for one in load_table(address, FS).lineage()] == [1, 4]


def expire_all_but_the_newest(address):
    other = other_engine(address)
    newest = other.metadata.current_snapshot_id
    old = [one.snapshot_id for one in other.metadata.snapshots if one.snapshot_id != newest]
    if old:
        other.maintenance.expire_snapshots().by_ids(old).commit()


def test_an_expiry_loses_neither_offsets_nor_history(address):
    load_range(address, 10)
    load_range(address, 20)
    expire_all_but_the_newest(address)
    assert [one["version"] for one in load_table(address, FS).lineage()] == [1, 2]
    other_engine(address).append(rows_of(7, 0, 3))
    other_engine(address).append(rows_of(7, 3, 5))
    expire_all_but_the_newest(address)
    assert entries(address) == {0: LedgerEntry(0, 20)}
    assert load_range(address, 30) == 5
    found = load_table(address, FS)
    assert offsets(found) == each_once(30) + each_once(*[0] * 7, 5)
    assert [one["version"] for one in found.lineage()] == [1, 2, 5]


def test_a_rollback_that_an_expiry_hides_is_refused(address):
    load_range(address, 10)
    load_range(address, 20)
    first = [one for one in other_engine(address).metadata.snapshots if one.sequence_number == 1]
    other_engine(address).manage_snapshots().rollback_to_snapshot(first[0].snapshot_id).commit()
    other_engine(address).append(rows_of(7, 0, 1))
    expire_all_but_the_newest(address)
    with pytest.raises(LedgerError, match="rollback"):
        load_to_write(address, FS)


def test_metadata_stays_small(address, monkeypatch):
    monkeypatch.setattr(requests, "KEPT_SNAPSHOTS", 10)
    loaded = load_to_write(address, FS)
    for number in range(MERGED_AT + 20):
        commit_range(loaded, number + 1)
    other = other_engine(address)
    assert len(other.metadata.snapshots) == 10
    assert len(other.current_snapshot().manifests(other.io)) < MERGED_AT
    folder = Path(load_table(address, FS).location) / "metadata"
    assert len(list(folder.glob("*.metadata.json"))) <= 22
    assert max(path.stat().st_size for path in folder.glob("*.metadata.json")) < 64_000
    assert offsets(load_table(address, FS)) == each_once(MERGED_AT + 20)
    assert len(load_table(address, FS).lineage()) == MERGED_AT + 20
    assert other.scan().to_arrow().num_rows == MERGED_AT + 20


def test_snapshots_that_a_tag_names_are_kept(address, monkeypatch):
    monkeypatch.setattr(requests, "KEPT_SNAPSHOTS", 5)
    load_range(address, 1)
    tagged = other_engine(address).metadata.current_snapshot_id
    other_engine(address).manage_snapshots().create_tag(tagged, "audited").commit()
    for number in range(10):
        load_range(address, number + 2)
    assert {one.sequence_number for one in other_engine(address).metadata.snapshots} == {1, *range(7, 12)}


def test_columns_of_another_engine_stop_a_load_that_was_written_for_others(address):
    loaded = load_to_write(address, FS)
    file = written(loaded, "old", 0, 0, 10)
    with other_engine(address).update_schema() as change:
        change.rename_column("value", "payload")
    with pytest.raises(StaleLedgerError, match="name"):
        loaded.commit([file], expected={}, transactions={}, lineage={})
    assert load_table(address, FS).version == 0


def test_a_column_of_the_records_that_is_gone_is_refused(address):
    load_range(address, 10)
    with other_engine(address).update_schema() as change:
        change.rename_column("value", "payload")
    with pytest.raises(TableRefusedError, match="the column value is gone or has another name"):
        look_at_tables(address, "events", "id-1", None, FS)


def test_a_commit_that_is_refused_leaves_no_manifest(address):
    late = load_to_write(address, FS)
    load_range(address, 10, partition=1)
    commit_range(late, 7)
    other = other_engine(address)
    named = {one.manifest_list for one in other.metadata.snapshots}
    named |= {one.manifest_path for one in other.current_snapshot().manifests(other.io)}
    folder = Path(load_table(address, FS).location) / "metadata"
    assert {f"file://{path}" for path in folder.glob("*.avro")} == named


def test_properties_and_transactions_are_set_in_one_commit(address):
    loaded = load_to_write(address, FS)
    assert (
        loaded.configure({"millrace.x": "y"}, expected={"a": None}, transactions={"a": 1}, lineage={"kind": "k"}) == 1
    )
    assert load_table(address, FS).configuration["millrace.x"] == "y"
    assert "millrace.ledger" not in load_table(address, FS).configuration
    with pytest.raises(StaleLedgerError):
        loaded.configure({}, expected={"a": None}, transactions={"a": 1}, lineage={})
    assert loaded.fence() == 2
    assert load_table(address, FS).transaction_version("a") == 1


def test_two_that_create_a_table_both_have_it(tmp_path):
    address = f"iceberg:{tmp_path}/lake/a.b.events"
    with ThreadPoolExecutor(4) as pool:
        ids = {one.id for one in pool.map(lambda _: made(address), range(4))}
    assert len(ids) == 1


def test_there_may_be_no_table_and_no_catalog(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load_if_there("iceberg:shop.events", FS) is None
    assert (tmp_path / "millrace" / "iceberg" / "catalog.sqlite").exists()
    with pytest.raises(TableNotFoundError):
        load_table(f"iceberg:{tmp_path}/shop.events", FS)
    with pytest.raises(WarehouseError, match="no such catalog"):
        load_table("iceberg:production/shop.events", FS)


def test_a_catalog_is_named_as_pyiceberg_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__PRODUCTION__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__PRODUCTION__URI", f"sqlite:///{tmp_path}/production.sqlite")
    monkeypatch.setenv("PYICEBERG_CATALOG__PRODUCTION__WAREHOUSE", f"file://{tmp_path}/warehouse")
    address = "iceberg:production/shop.events"
    made(address)
    load_range(address, 10)
    found = load_table(address, FS)
    assert offsets(found) == each_once(10)
    assert found.location == str(tmp_path / "warehouse" / "shop" / "events")


def test_a_catalog_that_can_t_be_asked_says_so_in_a_sentence(address, monkeypatch):
    def broken(*_):
        raise OperationalError("SELECT", {}, Exception("unable to open database file"))

    monkeypatch.setattr("pyiceberg.catalog.sql.SqlCatalog.load_table", broken)
    with pytest.raises(CatalogError) as raised:
        load_table(address, FS)
    assert str(raised.value).count("\n") == 0
    assert "Background" not in str(raised.value)


def test_a_torn_file_of_a_task_is_not_committed(address):
    loaded = load_to_write(address, FS)
    file = written(loaded, "torn", 0, 0, 10)
    path = Path(loaded.location) / file.name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(WarehouseError, match="its task wrote"):
        loaded.commit([file], expected={}, transactions={}, lineage={})
    assert load_table(address, FS).version == 0
