"""Deletion vectors of Iceberg's version 3: their files, what manifests and summaries say, and the ids of rows."""

import pickle
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.types import LongType

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.errors import StaleLedgerError, TableRefusedError
from millrace_pipelines.warehouse.formats import load_or_create, load_table, load_to_write
from millrace_pipelines.warehouse.iceberg import written_manifests
from millrace_pipelines.warehouse.iceberg.deletion_vectors import MAGIC, puffin_file
from millrace_pipelines.warehouse.iceberg.ledger_state import summary_of
from millrace_pipelines.warehouse.iceberg.manifest_files import first_row_id_of, read_entries, read_list, said
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.rewrite import current_files
from millrace_pipelines.warehouse.table.files import DataFileWriter, MarkedFile
from millrace_pipelines.warehouse.table.row_ids import LAST_UPDATED, ROW_ID
from millrace_pipelines.warehouse.table.vector_bytes import vector_bytes
from millrace_support.iceberg_tables import other_engine
from millrace_support.upserts import Upserts

FS = OsFileSystem()
OFFSET = pa.field("offset", pa.int64())
KEYS = [b"%02d" % number for number in range(20)]
SETS = {
    "one": [7],
    "ends of containers": [0, 65_535, 65_536, 131_071, 131_072, 199_999],
    "one more than are listed": range(0, 3 * 4097, 3),
    "all": range(200_000),
}


@pytest.fixture
def upserts(tmp_path):
    upserts = Upserts(f"iceberg:{tmp_path}/lake/shop.newest", by_vectors=True)
    upserts.run(*KEYS)
    return upserts


def manifests(upserts, content):
    table = other_engine(upserts.address)
    found = read_list(table.current_snapshot().manifest_list, table.io)
    return [one for one in found if one.content == content]


def entries(upserts, content):
    io = other_engine(upserts.address).io
    return [entry for one in manifests(upserts, content) for entry in read_entries(one, io)]


@pytest.mark.parametrize("rows", SETS.values(), ids=list(SETS))
def test_pyiceberg_reads_what_is_written(rows):
    content = puffin_file(vector_bytes(np.array(rows, np.int64)), "file:///lake/a.parquet", len(rows))
    [vector] = deletion_vectors_from_puffin_file(puffin := PuffinFile(content))
    assert vector.referenced_data_file == "file:///lake/a.parquet"
    assert vector.to_vector().to_pylist() == list(rows)
    [blob] = puffin.footer.blobs
    assert blob.properties["cardinality"] == str(len(rows))
    assert (blob.offset, blob.snapshot_id, blob.sequence_number, blob.fields) == (len(MAGIC), -1, -1, [2147483645])


def test_no_flipped_bit_and_no_cut_of_a_vector_is_read(upserts):
    [name] = upserts.names()
    upserts.run(KEYS[3], KEYS[5])
    [vector] = [Path(upserts.location, one) for one in upserts.vectors()]
    content = vector.read_bytes()
    [entry] = entries(upserts, ManifestContent.DELETES)
    offset, size = (said(entry.data_file, field) for field in ("content_offset", "content_size_in_bytes"))
    flipped = [
        content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        for at in range(offset, offset + size)
        for bit in range(8)
    ]
    for damaged in (*flipped, *(content[:end] for end in range(offset + size)), None):
        vector.unlink(missing_ok=True)
        if damaged is not None:
            vector.write_bytes(damaged)
        with pytest.raises(WarehouseError, match=r"damaged|can't be read"):
            load_table(upserts.address, FS).kept_rows()[name]


def marked_in_one_file(upserts, deleted):
    """Commits vectors of several files, which are in one file as other engines write them; returns their masks."""
    table, marked = load_to_write(upserts.address, FS), {}
    content, path = MAGIC, Path(upserts.location, "deletion_vector_shared.puffin")
    for name, rows in deleted.items():
        vector = vector_bytes(np.array(rows, np.int64))
        described = {"name": path.name, "offset": len(content), "size": len(vector), "cardinality": len(rows)}
        marked[name] = described
        content += vector
    path.write_bytes(content)
    files = [file for file in current_files(table) if file.name in deleted]
    given = {name: MarkedFile(one | {"file_size": len(content)}, len(deleted[name])) for name, one in marked.items()}
    table.commit([], removed=files, marked=given, expected={}, transactions={}, lineage={})


def test_several_vectors_in_a_file_are_read(upserts):
    upserts.run(b"a", b"b", b"c")
    first, second = (file.name for file in sorted(current_files(upserts.table), key=lambda one: -one.rows))
    marked_in_one_file(upserts, {first: [1, 2], second: [0]})
    kept = pickle.loads(pickle.dumps(upserts.table.kept_rows()))
    assert {name: np.flatnonzero(~mask).tolist() for name, mask in kept.items()} == {first: [1, 2], second: [0]}


def test_a_vector_of_another_file_is_refused(upserts):
    [name] = upserts.names()
    marked_in_one_file(upserts, {name: [len(KEYS)]})
    with pytest.raises(WarehouseError, match=f"{name} has 20 rows, its deletion vector deletes others"):
        upserts.table.dataset()


def test_a_file_has_one_vector_and_goes_with_it(upserts):
    [name] = upserts.names()
    for number in range(5):
        upserts.run(KEYS[number])
        referenced = Counter(
            said(one.data_file, "referenced_data_file") for one in entries(upserts, ManifestContent.DELETES)
        )
        assert referenced[f"file://{upserts.location}/{name}"] == 1
        assert set(referenced.values()) == {1}
    upserts.run(*KEYS[5:15])  # less than half would stay
    assert name not in upserts.names()
    files = {one.data_file.file_path for one in entries(upserts, ManifestContent.DATA)}
    assert {said(one.data_file, "referenced_data_file") for one in entries(upserts, ManifestContent.DELETES)} <= files


def test_small_manifests_of_vectors_are_merged(upserts, monkeypatch):
    monkeypatch.setattr(written_manifests, "MERGED_AT", 4)
    for number in range(12):
        upserts.run(b"new %d a" % number, b"new %d b" % number, b"new %d c" % number)
    for number in range(12):
        upserts.run(b"new %d a" % number)
    for content in (ManifestContent.DATA, ManifestContent.DELETES):
        assert len(manifests(upserts, content)) <= 5
    assert len(entries(upserts, ManifestContent.DELETES)) == 12
    assert len(upserts.keys()) == 20 + 36
    assert other_engine(upserts.address).scan().to_arrow().num_rows == 20 + 36


def test_a_vector_is_in_the_partition_of_its_file(tmp_path):
    address = f"iceberg:{tmp_path}/lake/shop.events"
    at, hour = pa.field("at", pa.timestamp("us", "UTC")), pa.field("event_hour", pa.timestamp("us", "UTC"))
    table = load_or_create(
        address, FS, schema=pa.schema([OFFSET, at, hour]), name="events", configuration={},
        partition_by={"event_hour": "at"}, deletion_vectors=True,
    )  # fmt: skip
    for number, moment in enumerate(datetime(2026, 1, 1, one, tzinfo=UTC) for one in (0, 1)):
        rows = pa.Table.from_pylist(
            [{"offset": 2 * number + one, "at": moment} for one in (0, 1)], pa.schema([OFFSET, at])
        )
        values = {"event_hour": f"{moment:%Y-%m-%d %H:%M:%S}"}
        with DataFileWriter(
            table.location, "load", 0, rows.schema, FS, partition_values=values, field_ids=table.field_ids
        ) as writer:
            writer.write(rows)
            table.commit([writer.finish()], expected={}, transactions={}, lineage={})
    files, stays = current_files(table), np.array([True, False])
    marked = {file.name: table.row_marker(table.store, file.name, stays) for file in files}
    table.commit([], removed=files, marked=marked, expected={}, transactions={}, lineage={})
    other = other_engine(address)
    found = [entry.data_file for one in read_list(other.current_snapshot().manifest_list, other.io)
             for entry in read_entries(one, other.io)]  # fmt: skip
    hours = {file.file_path: file.partition[0] for file in found if file.content == DataFileContent.DATA}
    vectors = {
        said(one, "referenced_data_file"): one.partition[0] for one in found if one.content != DataFileContent.DATA
    }
    assert vectors == hours
    assert len(set(hours.values())) == 2
    late = other.scan(row_filter="at >= '2026-01-01T01:00:00+00:00'").to_arrow()
    assert late.column("offset").to_pylist() == [2]


def test_a_summary_counts_what_manifests_list(upserts):
    for number in range(6):
        upserts.run(KEYS[number], KEYS[number + 1])
    upserts.run(*KEYS[:15])
    vectors = [one.data_file for one in entries(upserts, ManifestContent.DELETES)]
    files = [one.data_file for one in entries(upserts, ManifestContent.DATA)]
    counted = {
        "total-data-files": len(files),
        "total-records": sum(file.record_count for file in files),
        "total-delete-files": len(vectors),
        "total-position-deletes": sum(one.record_count for one in vectors),
        "total-files-size": sum(file.file_size_in_bytes for file in files)
        + sum(said(one, "content_size_in_bytes") for one in vectors),
    }
    said_last = summary_of(other_engine(upserts.address).current_snapshot())
    assert {name: int(said_last[name]) for name in counted} == counted


def test_a_file_whose_vector_another_engine_replaced_is_not_marked(upserts, monkeypatch):
    [file] = current_files(upserts.table)
    late = load_to_write(upserts.address, FS)
    marker = late.row_marker
    upserts.run(KEYS[3])
    stays = np.ones(len(KEYS), np.bool_)
    stays[4] = False
    mark = marker(late.store, file.name, stays)
    monkeypatch.setattr("millrace_pipelines.warehouse.iceberg.table.count_rewrites", lambda table: ({}, {}))
    with pytest.raises(StaleLedgerError, match="another engine deleted rows"):
        late.commit([], removed=[file], marked={file.name: mark}, expected={}, transactions={}, lineage={})
    assert upserts.keys() == KEYS


def row_ids(upserts):
    """Returns the ids of all rows by key, computed from manifests and files as the specification says."""
    table, found = upserts.table, {}
    for entry in entries(upserts, ManifestContent.DATA):
        file = entry.data_file
        name = file.file_path.removeprefix(f"file://{upserts.location}/")
        rows = pq.read_table(Path(upserts.location, name), partitioning=None)
        ids = rows.column(ROW_ID).to_pylist() if ROW_ID in rows.column_names else [None] * rows.num_rows
        kept = table.kept_rows().get(name)
        for number, (key, own) in enumerate(zip(rows.column("key").to_pylist(), ids, strict=True)):
            if kept is None or kept[number]:
                found[key] = said(file, "first_row_id") + number if own is None else own
    return found


def test_each_row_has_an_id_which_it_keeps(upserts):
    assert row_ids(upserts) == {key: number for number, key in enumerate(KEYS)}
    upserts.run(KEYS[3], b"new")
    upserts.run(*KEYS[5:15])
    upserts.run(KEYS[4])
    before = row_ids(upserts)
    assert len(set(before.values())) == 21
    stayed = {key: before[key] for key in (*KEYS[:3], *KEYS[15:])}
    assert stayed == {key: KEYS.index(key) for key in stayed}
    compact(upserts.address, FS, SystemClock())
    assert row_ids(upserts) == before
    [name] = upserts.names()
    assert set(pq.read_table(Path(upserts.location, name)).column(LAST_UPDATED).to_pylist()) == {1, 2, 3, 4}
    metadata = other_engine(upserts.address).metadata
    assert metadata.next_row_id > max(before.values())
    ranges = [
        (first_row_id_of(one), one.existing_rows_count + one.added_rows_count)
        for one in manifests(upserts, ManifestContent.DATA)
    ]
    assert all(first + rows <= metadata.next_row_id for first, rows in ranges)
    vacuum(upserts.address, FS, retention_hours=0)
    assert upserts.keys() == sorted([*KEYS, b"new"])


def test_a_column_with_a_default_is_refused(upserts):
    with other_engine(upserts.address).update_schema() as change:
        change.add_column("more", LongType(), default_value=5)
    for ask in (lambda table: table.schema, lambda table: table.dataset()):
        with pytest.raises(TableRefusedError, match="column more has a default value"):
            ask(upserts.table)
    with pytest.raises(TableRefusedError, match="column more has a default value"):
        upserts.run(KEYS[0])


@pytest.mark.parametrize(
    ("properties", "reason"),
    [({"format-version": "1"}, "format version 1"), ({"encryption.key-id": "k"}, "is encrypted")],
)
def test_a_table_that_can_not_be_obeyed_takes_no_rows(tmp_path, properties, reason):
    address = f"iceberg:{tmp_path}/lake/shop.events"
    with pytest.raises(TableRefusedError, match=f"{reason}.*Way on: load into another table"):
        load_or_create(address, FS, schema=pa.schema([OFFSET]), name="events", configuration=properties)
    assert load_table(address, FS).version == 0


def test_an_ordinary_table_asks_for_no_vectors(tmp_path):
    upserts = Upserts(f"iceberg:{tmp_path}/lake/shop.newest")
    upserts.run(*KEYS)
    assert upserts.table.row_marker is None
    assert upserts.table.row_origins is None
    assert other_engine(upserts.address).metadata.format_version == 2
