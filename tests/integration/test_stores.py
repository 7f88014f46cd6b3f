"""Tables in every store: all that is done with one, two loaders at a time, and answers that are lost on their way.

Each store is played by a server of this machine; those that `make stores` has not brought are skipped.
"""

import threading
from contextlib import suppress

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake.exceptions import CommitFailedError

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.file_actions import add_action
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import LeaseLostError, StaleLedgerError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.leases import conditional, lease, running
from millrace_pipelines.warehouse.stores.options import use_store_options
from millrace_pipelines.warehouse.stores.store import LINEAGE_FOLDER
from millrace_pipelines.warehouse.stores.timed_leases import TimedLeases
from millrace_pipelines.warehouse.table.files import DataFileWriter, remove_files_of_load, write_file
from millrace_pipelines.warehouse.tables.find import table_locations
from millrace_support.loads import Loads
from millrace_support.stores.stand_ins import STAND_INS, losing_answers, missing, started

FS = OsFileSystem()
KEYED = {"millrace.topic": "events", "millrace.topicId": "id-1", "millrace.mode": "upsert"}
COMMITS = 8


@pytest.fixture(scope="module", params=STAND_INS)
def store(request):
    reason = missing(request.param)
    if reason is not None:
        pytest.skip(reason)
    with started(request.param) as running:
        use_store_options({running.address: running.options})
        yield running
        use_store_options({})


def offsets_in(location):
    table = Table.load(location, FS)
    rows = ds.dataset(table.files(), filesystem=table.filesystem).to_table(columns=["offset"])
    return sorted(rows.column("offset").to_pylist())


def data_files(location):
    return [name for name in store_at(location, FS).names() if name.endswith(".parquet")]


def load_one(location, operation_id):
    """Loads the next offset of partition 0, as a load does; returns it."""
    table = Table.load_to_write(location, FS)
    ledger = ledger_of(table)
    offset = ledger.next_offset(0) or 0
    values = {"topic": "events", "partition": 0, "offset": offset, "timestamp": 0, "value": b"v", "headers": []}
    with lease(location, operation_id, FS):
        file = write_file(location, operation_id, pa.Table.from_pylist([values], ENVELOPE_SCHEMA), FS)
        expected, transactions = swap(ledger, {0: LedgerEntry(offset, offset + 1)})
        table.commit([file], expected=expected, transactions=transactions, lineage={"ranges": []})
    return offset


def test_two_writers_of_one_file_at_once_both_end_and_leave_a_whole_one(store):
    """As two upserts do that miss the same index of keys."""
    found = store_at(f"{store.address}/twice", FS)
    found.make()
    contents = [b"first" * 100_000, b"second"]
    with found.output("_keys/one") as first:
        first.write(contents[0][:100])
        with found.output("_keys/one") as second:
            second.write(contents[1])
        first.write(contents[0][100:])
    assert found.read("_keys/one") == contents[0]
    assert found.names() == ["_keys/one"]


def test_a_writer_that_fails_leaves_no_file_of_another_name(store):
    found = store_at(f"{store.address}/failed", FS)
    found.make()
    with suppress(ZeroDivisionError), found.output("part-1") as stream:
        stream.write(b"some")
        raise ZeroDivisionError
    assert found.names() in ([], ["part-1"])  # a folder and a bucket keep what was written; a vacuum removes it


def test_a_table_is_loaded_compacted_erased_vacuumed_and_audited(store):
    location = f"{store.address}/life/events"
    loads = Loads(location)
    for number in range(12):
        keys = [f"key {number % 4}".encode(), b"other"]
        loads.load((2 * number, 2 * number + 2), [2 * number, 2 * number + 1], keeps=True, values={"key": keys})
    assert audit(location, fs=FS) == []
    assert compact(location, FS, SystemClock()).files_before == 12
    assert erase(location, [b"key 1"], FS).rows == 3
    assert audit(location, fs=FS) == []
    assert len(data_files(location)) == 14
    assert len(vacuum(location, FS, retention_hours=0).files) == 13
    assert data_files(location) == Table.load(location, FS).file_names()
    assert offsets_in(location) == [offset for offset in range(24) if offset not in (2, 10, 18)]
    assert audit(location, fs=FS) == []
    assert table_locations(f"{store.address}/life") == [location]


def test_keys_are_upserted(store):
    location = f"{store.address}/upserted/events"
    Table.load_or_create(location, FS, schema=ENVELOPE_SCHEMA, name="events", configuration=KEYED)
    for number, value in enumerate([b"old", b"new"]):
        ledger = ledger_of(Table.load(location, FS))
        keys = [b"both", b"of %d" % number]
        rows = [
            {"topic": "events", "partition": 0, "offset": 2 * number + one, "timestamp": 0, "key": key,
             "value": value, "headers": []}
            for one, key in enumerate(keys)
        ]  # fmt: skip
        with lease(location, "load", FS):
            with DataFileWriter(location, "load", 0, ENVELOPE_SCHEMA, FS) as writer:
                writer.write(pa.Table.from_pylist(rows, ENVELOPE_SCHEMA))
                staged = [writer.finish()]
            expected, transactions = swap(ledger, {0: LedgerEntry(2 * number, 2 * number + 2)})
            Upsert(staged, FS, expected=expected, transactions=transactions, lineage={}).commit(location)
            remove_files_of_load(location, "load", FS)
    found = Table.load(location, FS).dataset().to_table(columns=["key", "value"]).to_pylist()
    assert {row["key"]: row["value"] for row in found} == {b"both": b"new", b"of 0": b"old", b"of 1": b"new"}
    assert len(found) == 3


def test_of_two_loaders_each_commits_what_the_other_has_not(store):
    location = f"{store.address}/raced/events"
    Loads(location)
    committed, lost = [], []

    def race(name):
        while len(committed) < COMMITS:
            try:
                committed.append(load_one(location, f"{name}{len(committed)}"))
            except StaleLedgerError as error:
                lost.append(error)

    racers = [threading.Thread(target=race, args=(name,)) for name in ("left", "right")]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(committed) == offsets_in(location) == list(range(len(committed)))
    assert vacuum(location, FS, retention_hours=0).running == 0
    assert data_files(location) == Table.load(location, FS).file_names()


def test_a_commit_whose_answer_is_lost_is_there_once(store):
    location = f"{store.address}/lossy/events"
    Loads(location)
    with losing_answers(store, count=3) as lossy:
        use_store_options({lossy.address: lossy.options})
        for number in range(6):
            with suppress(WarehouseError):  # of one that may or may not be made, or of the next that finds it
                load_one(location, f"load{number}")
            assert offsets_in(location) == list(range(len(offsets_in(location))))
    use_store_options({store.address: store.options})
    assert len(offsets_in(location)) >= 5


def test_what_runs_is_seen_and_its_files_stay(store):
    location = f"{store.address}/leased/events"
    Loads(location).load((0, 1), [0])
    with lease(location, "running", FS) as held:
        write_file(location, "running", Table.load(location, FS).dataset().to_table(), FS)
        assert [one.operation_id for one in running(location, FS)] == ["running"]
        done = vacuum(location, FS, retention_hours=0)
        assert (done.files, done.running) == ((), 1)
        held.confirm()
    assert len(vacuum(location, FS, retention_hours=0).files) == 1
    assert not [
        name for name in store_at(location, FS).names() if not name.startswith((LINEAGE_FOLDER, "part-", "_ledger"))
    ]


def test_a_commit_that_is_late_finds_the_fence_of_those_who_took_its_operation_for_dead(store):
    location = f"{store.address}/fenced/events"
    Loads(location).load((0, 1), [0])
    late = Table.load_to_write(location, FS)
    files = conditional(store_at(location, FS))
    seen = TimedLeases(files, SystemClock(), lease_ms=0)
    with TimedLeases(files, SystemClock()).hold("dead") as held:
        file = write_file(location, "dead", late.dataset().to_table(), FS)
        while not seen.ask(dry_run=False).ended:  # a store's times may be whole seconds
            pass
        with pytest.raises(LeaseLostError, match="could not renew its lease"):
            held.confirm()
        assert vacuum(location, FS, retention_hours=0).running == 1  # for LEASE_MS
        assert Table.load(location, FS).fence() == 2
        _, transactions = swap(ledger_of(late), {0: LedgerEntry(1, 2)})
        with pytest.raises(CommitFailedError):
            late._write_commit([add_action(file, 0)], {}, {}, late._properties(transactions, {"kind": "x"}))
    assert Table.load(location, FS).version == 2
