"""Commits to an Iceberg table that remove and replace files, beside loaders, other engines and lost answers."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestEntryStatus

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.errors import NOT_COMMITTED, StaleLedgerError
from millrace_pipelines.warehouse.formats import load_table, load_to_write
from millrace_pipelines.warehouse.iceberg.ledger_state import summary_of
from millrace_pipelines.warehouse.iceberg.written_manifests import MERGED_AT
from millrace_pipelines.warehouse.rewrite import current_files, files_removed_on
from millrace_pipelines.warehouse.table.files import write_file
from millrace_pipelines.warehouse.table.table import REWRITES_APP_ID
from millrace_support.iceberg_tables import (
    LostAnswerError,
    commits_pass,
    compact_elsewhere,
    each_once,
    load_range,
    made_of_two_files,
    offsets,
    other_engine,
    rows_of,
    written,
)

FS = OsFileSystem()
SAYS = {
    "added-data-files", "added-records", "deleted-data-files", "deleted-records", "total-data-files", "total-records",
}  # fmt: skip


@pytest.fixture
def address(tmp_path):
    """A table of two files: the offsets 0 to 9 and 10 to 19."""
    return made_of_two_files(f"iceberg:{tmp_path}/lake/shop.events")


def first_file(table):
    return next(file for file in current_files(table) if file.offsets and file.offsets[1] == 9)


def remove_offsets(table, until_offset, load_id="rewrite", **how):
    """Replaces the file of the first ten offsets by one with those from `until_offset` on; returns the version."""
    files = [written(table, load_id, 0, until_offset, 10)] if until_offset < 10 else []
    lineage = {"kind": "erase"}
    return table.commit(files, removed=[first_file(table)], expected={}, transactions={}, lineage=lineage, **how)


def left(until_offset):
    return Counter((0, offset) for offset in range(until_offset, 20))


@pytest.mark.parametrize(
    ("until_offset", "how", "operation", "numbers"),
    [
        (4, {}, "overwrite", (1, 6, 1, 10, 2, 16)),
        (10, {}, "delete", (0, 0, 1, 10, 1, 10)),
        (0, {"data_change": False}, "replace", (1, 10, 1, 10, 2, 20)),
    ],
)
def test_files_are_replaced_in_one_commit_that_says_so(address, until_offset, how, operation, numbers):
    table = load_to_write(address, FS)
    assert remove_offsets(table, until_offset, **how) == 3
    assert offsets(load_table(address, FS)) == left(until_offset)
    other = other_engine(address)
    assert other.scan().to_arrow().num_rows == 20 - until_offset
    summary = other.current_snapshot().summary
    assert summary.operation.value == operation
    found = tuple(int(summary_of(other.current_snapshot()).get(name, "0")) for name in sorted(SAYS))
    assert found == numbers
    total = sum(file.size_bytes for file in current_files(load_table(address, FS)))
    assert summary["total-files-size"] == str(total)
    assert load_table(address, FS).transaction_version(REWRITES_APP_ID) == 1
    assert load_table(address, FS).commits_after(2, 1)[0].operation == operation


def entries(address):
    """Returns status, sequence number and file sequence number of all entries of the newest snapshot."""
    other = other_engine(address)
    manifests = other.current_snapshot().manifests(other.io)
    found = [entry for one in manifests for entry in one.fetch_manifest_entry(other.io, discard_deleted=False)]
    return sorted((entry.status.name, entry.sequence_number, entry.file_sequence_number) for entry in found)


def test_entries_keep_their_sequence_numbers_whatever_becomes_of_them(address, monkeypatch):
    monkeypatch.setattr("millrace_pipelines.warehouse.iceberg.written_manifests.MERGED_AT", 2)
    load_range(address, 30)
    assert entries(address) == [("ADDED", 3, 3), ("EXISTING", 1, 1), ("EXISTING", 2, 2)]
    monkeypatch.setattr("millrace_pipelines.warehouse.iceberg.written_manifests.MERGED_AT", MERGED_AT)
    remove_offsets(load_to_write(address, FS), 4)
    assert entries(address) == [("ADDED", 3, 3), ("ADDED", 4, 4), ("DELETED", 1, 1), ("EXISTING", 2, 2)]
    load_range(address, 40)
    remove_offsets_of_all(address)
    other = other_engine(address)
    assert {status for status, _, _ in entries(address)} == {ManifestEntryStatus.DELETED.name}
    load_range(address, 50)
    manifests = other_engine(address).current_snapshot().manifests(other.io)
    assert len(manifests) == 1
    assert offsets(load_table(address, FS)) == Counter((0, offset) for offset in range(40, 50))


def remove_offsets_of_all(address):
    table = load_to_write(address, FS)
    table.commit([], removed=current_files(table), expected={}, transactions={}, lineage={"kind": "erase"})


def test_a_removed_file_is_listed_without_bounds_which_may_be_erased_keys(address):
    other_engine(address).append(rows_of(3, 0, 1).set_column(4, "key", pa.array([b"secret"])))
    table = load_to_write(address, FS)
    theirs = [file for file in current_files(table) if file.partitions == (3, 3)]
    before = {entry.data_file.file_path for entry in all_entries(address) if b"secret" in bounds(entry)}
    assert before == {f"file://{table.location}/{theirs[0].name}"}
    table.commit([], removed=theirs, expected={}, transactions={}, lineage={"kind": "erase"})
    assert not [entry for entry in all_entries(address) if b"secret" in bounds(entry)]


def all_entries(address):
    other = other_engine(address)
    for one in other.current_snapshot().manifests(other.io):
        yield from one.fetch_manifest_entry(other.io, discard_deleted=False)


def bounds(entry):
    file = entry.data_file
    return [*(file.lower_bounds or {}).values(), *(file.upper_bounds or {}).values()]


def compacts(address):
    compact_elsewhere(address)


def deletes_the_first_rows(address):
    other_engine(address).delete("offset < 2")


def rolls_back(address):
    other = other_engine(address)
    oldest = min(other.metadata.snapshots, key=lambda one: one.sequence_number)
    other.manage_snapshots().rollback_to_snapshot(oldest.snapshot_id).commit()


def rewrites_too(address):
    remove_offsets(load_to_write(address, FS), 1, load_id="other")


def replaces_all(address):
    table = load_to_write(address, FS)
    file = write_file(table.location, "all", rows_of(0, 0, 20), FS, table.field_ids)
    table.replace(table.schema, [file], expected={}, lineage={"kind": "schema"})


def appends(address):
    other_engine(address).append(rows_of(7, 0, 3))


def loads(address):
    load_range(address, 5, partition=1)


@pytest.mark.parametrize("meanwhile", [compacts, deletes_the_first_rows, rewrites_too, replaces_all])
def test_a_rewrite_of_files_that_are_gone_gives_way(address, meanwhile):
    late = load_to_write(address, FS)
    meanwhile(address)
    before = offsets(load_table(address, FS))
    with pytest.raises(StaleLedgerError), files_removed_on(NOT_COMMITTED, [late.location], "rewrite", FS):
        remove_offsets(late, 4)
    assert offsets(load_table(address, FS)) == before


@pytest.mark.parametrize(("meanwhile", "more"), [(appends, each_once(*[0] * 7, 3)), (loads, each_once(0, 5))])
def test_a_rewrite_goes_on_beside_rows_that_come(address, meanwhile, more):
    late = load_to_write(address, FS)
    meanwhile(address)
    assert remove_offsets(late, 4) == 4
    assert offsets(load_table(address, FS)) == left(4) + more


@pytest.mark.parametrize("meanwhile", [compacts, deletes_the_first_rows, rewrites_too, appends, loads, rolls_back])
def test_all_files_are_replaced_on_exactly_the_version_that_was_read(address, meanwhile):
    late = load_to_write(address, FS)
    meanwhile(address)
    before = offsets(load_table(address, FS))
    file = write_file(late.location, "all", rows_of(0, 0, 20), FS, late.field_ids)
    with pytest.raises(StaleLedgerError):
        late.replace(late.schema, [file], expected={}, lineage={"kind": "schema"})
    assert offsets(load_table(address, FS)) == before


def test_a_rewrite_gives_way_to_a_rollback_that_takes_its_file(address):
    second = next(file for file in current_files(load_table(address, FS)) if file.offsets == (10, 19))
    late = load_to_write(address, FS)
    rolls_back(address)
    with pytest.raises(StaleLedgerError, match="is not in the table any more"):
        late.commit([], removed=[second], expected={}, transactions={}, lineage={})
    assert offsets(load_table(address, FS)) == each_once(10)


def keeps_only_the_newest(address):
    other = other_engine(address)
    old = [one.snapshot_id for one in other.metadata.snapshots if one != other.current_snapshot()]
    other.maintenance.expire_snapshots().by_ids(old).commit()


def compacts_and_expires(address):
    compacts(address)
    keeps_only_the_newest(address)


@pytest.mark.parametrize("until_offset", [4, 10])
@pytest.mark.parametrize("what", ["request is lost", "answer is lost", "answer is lost and the snapshot expires"])
def test_an_unknown_answer_is_settled_and_nothing_is_removed_twice(address, what, until_offset):
    loaded, tries = load_to_write(address, FS), []

    def act(commit):
        tries.append(commit)
        if len(tries) > 1:
            return commit()
        if what != "request is lost":
            commit()
        if what.endswith("expires"):
            compacts_and_expires(address)
        raise LostAnswerError

    with commits_pass(act), files_removed_on(NOT_COMMITTED, [loaded.location], "rewrite", FS):
        remove_offsets(loaded, until_offset)
    found = load_table(address, FS)
    assert offsets(found) == left(until_offset)
    assert found.transaction_version(REWRITES_APP_ID) == 1
    assert [one["kind"] for one in found.lineage()] == ["load", "load", "erase"]


@pytest.mark.parametrize("arrives", ["before the second request", "after it"])
def test_of_two_requests_for_one_rewrite_only_one_is_made(address, arrives):
    loaded, tries = load_to_write(address, FS), []

    def act(commit):
        tries.append(commit)
        if len(tries) == 1:
            raise LostAnswerError
        if arrives.startswith("before"):
            tries[0]()
        return commit()

    with commits_pass(act):
        remove_offsets(loaded, 4)
    assert offsets(load_table(address, FS)) == left(4)
    assert load_table(address, FS).transaction_version(REWRITES_APP_ID) == 1


def wider(table):
    return pa.schema([pa.field(one.name, pa.float64()) if one.name == "partition" else one for one in table.schema])


def test_columns_that_iceberg_can_t_widen_are_replaced_with_all_files(address):
    table = load_to_write(address, FS)
    columns, before = wider(table), table.field_ids
    ids = table.ids_for(columns)
    rows = table.dataset().to_table().cast(columns)
    file = write_file(table.location, "wider", rows, FS, ids)
    assert table.replace(columns, [file], expected={}, lineage={"kind": "schema"}) == 3
    assert load_table(address, FS).schema.field("partition").type == pa.float64()
    assert load_table(address, FS).field_ids == ids
    other = other_engine(address)
    assert other.current_snapshot().summary.operation.value == "overwrite"
    found = other.scan().to_arrow()
    assert sorted(found.column("offset").to_pylist()) == list(range(20))
    assert found.column("partition").to_pylist() == [0.0] * 20
    assert {name for name in before if ids[name] == before[name]} == before.keys() - {("partition",)}
    rolls_back(address)
    for rows in (load_table(address, FS).dataset().to_table(), other_engine(address).scan().to_arrow()):
        assert rows.column("offset").to_pylist() == list(range(10))
        assert rows.column("partition").to_pylist() == [None] * 10


def test_digests_outlive_expiry_and_manifests_that_others_write_again(address):
    before = load_table(address, FS).digests()
    deletes_the_first_rows(address)
    keeps_only_the_newest(address)
    table = load_table(address, FS)
    kept = {name: digest for name, digest in before.items() if name in table.file_names()}
    assert table.digests() == kept
    assert len(kept) == 1
    remove_offsets_of_first(address)
    assert kept.items() < load_table(address, FS).digests().items()


def remove_offsets_of_first(address):
    """Writes the file again that another engine wrote."""
    table = load_to_write(address, FS)
    file = written(table, "again", 0, 2, 10)
    table.commit([file], removed=[first_file(table)], expected={}, transactions={}, lineage={"kind": "erase"})


def test_a_rewrite_that_gives_way_leaves_no_manifest(address):
    late = load_to_write(address, FS)
    rewrites_too(address)
    with pytest.raises(StaleLedgerError):
        remove_offsets(late, 4)
    other = other_engine(address)
    named = {one.manifest_list for one in other.metadata.snapshots}
    named |= {one.manifest_path for each in other.metadata.snapshots for one in each.manifests(other.io)}
    folder = Path(load_table(address, FS).location) / "metadata"
    assert {f"file://{path}" for path in folder.glob("*.avro")} == named
