"""Iceberg tables whose rows another engine deletes beside the files, and whose columns it renames and reorders."""

import pickle
from collections import Counter

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files
from millrace_pipelines.warehouse.errors import StaleLedgerError, TableRefusedError
from millrace_pipelines.warehouse.formats import load_table, load_to_write
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.rewrite import current_files, read_rows
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import write_file
from millrace_support.iceberg_tables import (
    commit_range,
    compact_elsewhere,
    delete_positions,
    load_range,
    made,
    made_of_two_files,
    offsets,
    other_engine,
    rows_of,
)
from millrace_support.loads import Loads
from millrace_support.upserts import Upserts

FS = OsFileSystem()
TYPED = pa.schema(
    [
        *[pa.field(name, kind) for name, kind in (("partition", pa.int32()), ("offset", pa.int64()))],
        pa.field("city", pa.string()),
        pa.field("place", pa.struct([pa.field("lat", pa.int32()), pa.field("lon", pa.int32())])),
        pa.field("stops", pa.list_(pa.field("element", pa.struct([pa.field("name", pa.string())])))),
    ]
)
ROW = {"partition": 0, "city": "Bern", "place": {"lat": 1, "lon": 2}, "stops": [{"name": "Thun"}, None]}


@pytest.fixture
def address(tmp_path):
    return made_of_two_files(f"iceberg:{tmp_path}/lake/shop.events")


def first_name(address):
    return next(file.name for file in current_files(load_table(address, FS)) if file.offsets == (0, 9))


def left(*deleted, until_offset=20):
    return Counter((0, offset) for offset in range(until_offset) if offset not in deleted)


def test_rows_that_a_file_of_positions_deletes_are_left_out_by_all(address):
    delete_positions(address, {first_name(address): [2, 5]})
    table = load_table(address, FS)
    assert offsets(table) == left(2, 5)
    assert {(file.rows, file.has_vector) for file in current_files(table)} == {(8, True), (10, False)}
    read = [offset for name in table.file_names() for some in read_rows(table, name)
            for offset in some.column("offset").to_pylist()]  # fmt: skip
    assert sorted(read) == [offset for offset in range(20) if offset not in (2, 5)]
    assert other_engine(address).scan().to_arrow().num_rows == 18
    assert load_range(address, 25) == 4
    assert offsets(load_table(address, FS)) == left(2, 5, until_offset=25)


def test_a_rewrite_of_a_file_that_lost_rows_meanwhile_gives_way(address):
    late = load_to_write(address, FS)
    [file] = [one for one in current_files(late) if one.name == first_name(address)]
    delete_positions(address, {file.name: [2]})
    with pytest.raises(StaleLedgerError, match="another engine deleted rows"):
        late.commit([], removed=[file], expected={}, transactions={}, lineage={})
    assert offsets(load_table(address, FS)) == left(2)


def test_an_upsert_writes_what_others_have_deleted_no_more(tmp_path):
    table = Upserts(f"iceberg:{tmp_path}/lake/shop.newest")
    table.run(b"a", b"b", b"c")
    [name] = table.names()
    delete_positions(table.address, {name: [table.keys_of(name).index(b"b")]})
    assert table.keys() == [b"a", b"c"]
    counts = table.run(b"c", b"b")
    assert (counts.inserted, counts.updated) == (1, 1)
    assert table.keys() == [b"a", b"b", b"c"]
    assert other_engine(table.address).scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("engine", [compact_elsewhere, lambda address: delete_positions(address, {})])
def test_an_upsert_is_made_again_where_another_engine_commits_between(tmp_path, engine):
    table = Upserts(f"iceberg:{tmp_path}/lake/shop.newest")
    table.run(b"a", b"b", b"c")
    counts = table.run(b"b", b"d", between=lambda: engine(table.address))
    assert (counts.inserted, counts.updated) == (1, 1)
    assert table.keys() == [b"a", b"b", b"c", b"d"]


def test_masks_are_bits_on_their_way_to_tasks(tmp_path):
    loads = Loads(f"iceberg:{tmp_path}/lake/shop.events")
    loads.load((0, 1000), range(1000))
    [name] = load_table(loads.address, FS).file_names()
    delete_positions(loads.address, {name: [0, 7, 999]})
    kept = load_table(loads.address, FS).kept_rows()
    sent = pickle.dumps(kept)
    assert len(sent) < 1000
    assert pickle.loads(sent)[name].tolist() == kept[name].tolist() == [row not in {0, 7, 999} for row in range(1000)]


def test_an_erasure_takes_rows_that_others_have_deleted_out_of_the_files(tmp_path):
    loads = Loads(f"iceberg:{tmp_path}/lake/shop.events")
    loads.load((0, 4), range(4), values={"key": [b"a", b"b", b"c", b"a"]})
    [name] = load_table(loads.address, FS).file_names()
    delete_positions(loads.address, {name: [0]})
    report = erase(loads.address, [b"a"], FS)
    assert (report.files, report.rows) == (1, 1)
    assert load_table(loads.address, FS).kept_rows() == {}
    assert [key.as_py() for some in read_all(loads.address) for key in some.column("key")] == [b"b", b"c"]


def read_all(address):
    table = load_table(address, FS)
    return [some for name in table.file_names() for some in read_rows(table, name)]


def test_audits_see_what_another_engine_deleted(tmp_path):
    loads = Loads(f"iceberg:{tmp_path}/lake/shop.events")
    loads.load((0, 10), range(10))
    [name] = load_table(loads.address, FS).file_names()
    assert audit(loads.address) == []
    delete_positions(loads.address, {name: [3]})
    deleted, missing = audit(loads.address)
    assert "partition 0, offsets 3: deleted by another engine's deletion vector" in deleted
    assert "1 offsets are not there: 3" in missing
    assert audit_stored_files(loads.address).findings == ()


def test_deletes_by_equality_are_refused_with_a_way_on(address):
    delete_positions(address, {first_name(address): [2]}, by_equality=True)
    for ask in (lambda one: one.kept_rows(), lambda one: one.dataset(), current_files):
        with pytest.raises(TableRefusedError, match="rewrite_data_files with delete-file-threshold 1"):
            ask(load_table(address, FS))
    assert load_range(address, 25) == 4


def test_files_of_partitions_that_millrace_does_not_write_are_not_rewritten(tmp_path):
    address = f"iceberg:{tmp_path}/lake/shop.events"
    made(address)
    with other_engine(address).update_spec() as change:
        change.add_identity("partition")
    other_engine(address).append(rows_of(0, 0, 3))
    with other_engine(address).update_spec() as change:
        change.remove_field("partition")
    load_to_write(address, FS)
    assert set(load_table(address, FS).partition_values().popitem()[1].values()) == {"0"}
    with pytest.raises(TableRefusedError, match="by day and hour only"):
        load_to_write(address, FS, access=Access.REMOVE)


def typed(tmp_path):
    address = f"iceberg:{tmp_path}/lake/shop.typed"
    table = made(address, TYPED)
    rows = pa.Table.from_pylist([ROW | {"offset": 0}, ROW | {"offset": 1, "place": None, "stops": None}], TYPED)
    file = write_file(table.location, "load", rows, FS, table.field_ids)
    table.commit([file], expected={}, transactions={}, lineage={})
    return address


def rename(change):
    change.rename_column("city", "town")
    change.rename_column("place.lat", "latitude")
    change.rename_column("stops.element.name", "title")


def swap_names(change):
    change.rename_column("city", "old_city")


def swap_more(change):
    change.rename_column("old_city", "was")
    change.add_column("city", LongType())


def other_type():
    from pyiceberg.types import LongType

    return LongType()


def reorder(change):
    change.move_first("stops")
    change.move_first("city")


def drop(change):
    change.delete_column("city")
    change.delete_column("place.lon")


PLACE, STOPS = [{"lat": 1, "lon": 2}, None], [[{"name": "Thun"}, None], None]
CHANGES = {
    "renamed": ([rename], {"town": ["Bern"] * 2, "place": [{"latitude": 1, "lon": 2}, None],
                           "stops": [[{"title": "Thun"}, None], None]}),
    "another column has the name": ([swap_names, swap_more], {"was": ["Bern"] * 2, "city": [None] * 2, "stops": STOPS}),
    "reordered": ([reorder], {"city": ["Bern"] * 2, "place": PLACE, "stops": STOPS}),
    "dropped": ([drop], {"place": [{"lat": 1}, None], "stops": STOPS}),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_columns_are_known_by_their_ids(tmp_path, what):
    address, (changes, expected) = typed(tmp_path), CHANGES[what]
    for change in changes:
        with other_engine(address).update_schema(allow_incompatible_changes=True) as schema:
            change(schema)
    for _ in range(2):
        table = load_table(address, FS)
        [name] = table.file_names()
        [by_block] = list(read_rows(table, name))
        theirs = other_engine(address).scan().to_arrow()  # which shows a null list of structs as an empty one
        for found in (by_block, table.dataset().to_table().sort_by("offset"), theirs):
            asked = [column for column in expected if found is not theirs or column != "stops"]
            assert {column: found.column(column).to_pylist() for column in asked} == {
                column: expected[column] for column in asked
            }
            assert found.column_names == table.schema.names
        rewritten = write_file(table.location, "again", by_block, FS, table.field_ids)
        table.commit([rewritten], removed=current_files(table), expected={}, transactions={}, lineage={})


def test_a_load_after_a_rename_finds_the_rows_by_their_ids(address):
    with other_engine(address).update_schema() as change:
        change.rename_column("timestamp", "at")
    with other_engine(address).update_schema() as change:
        change.rename_column("at", "timestamp")
        change.move_first("value")
    table = load_to_write(address, FS)
    commit_range(table, 25)
    assert offsets(load_table(address, FS)) == left(until_offset=25)
