"""Upsert, erasure, reload, backfill and maintenance beside loads, from a real broker through a real Spark."""

import json
import uuid
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from millrace.client import Admin, Cluster
from millrace.clock import SystemClock
from millrace.testing.broker import BrokerProcess
from millrace_ops.cli.app import app
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.errors import KeylessRecordsError, ModeError, StaleLedgerError, TableRefusedError
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, read_ledger
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.history import COMMITS_AT_ONCE, commits_since
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import Step
from millrace_pipelines.warehouse.load.replay import ReplayOptions, replay
from millrace_pipelines.warehouse.maintenance import MaintenancePolicy, checkpoint, compact, maintain, vacuum
from millrace_pipelines.warehouse.rewrite import read_rows
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.broker_properties import KEEPS_ALL
from millrace_support.command_runner import CommandRunner
from millrace_support.findings import told
from millrace_support.keyed_events import FS, At, Events, by_key, key, offsets, stored
from millrace_support.loads import Loads
from millrace_support.other_engines import delete_elsewhere

SCHEMA = {"fields": [{"name": "name", "type": "string"}]}
run = CommandRunner().invoke


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker"), properties=KEEPS_ALL) as process:
        yield process


@pytest.fixture(scope="module")
def cluster(broker):
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def events(broker, cluster):
    return Events(cluster, broker.bootstrap)


def test_upserts_keep_the_newest_value_of_each_key(spark, events, any_address):
    options = events.options(any_address, mode=Mode.UPSERT)
    events.send(*((key(n % 30), b"%d" % n) for n in range(200)))
    first = load_topic(options, spark=spark)
    assert (first.rows, first.upserted.inserted, first.upserted.updated) == (200, 30, 0)
    assert by_key(options.table) == events.newest
    events.send(
        (key(3), None), (key(4), b"new"), (key(99), None), (key(31), b"first"), (key(5), None), (key(5), b"again")
    )
    second = load_topic(replace(options, mode=None), spark=spark)
    assert (second.upserted.inserted, second.upserted.updated, second.upserted.deleted) == (1, 2, 1)
    compact(options.table, FS, SystemClock())
    events.send((key(31), b"second"))
    load_topic(options, spark=spark)
    assert by_key(options.table) == events.newest
    assert {row["offset"] for row in stored(options.table) if row["key"] == key(31)} == {len(events.sent[1]) - 1}
    assert audit(options.table) == []
    assert load_topic(options, spark=spark).version is None
    with pytest.raises(ModeError, match="created for upsert, not append"):
        load_topic(replace(options, mode=Mode.APPEND), spark=spark)


def unnamed_files(address):
    """Returns the data files of a table that is not partitioned which this version does not name."""
    table = load_table(address, FS)
    return {str(path) for path in Path(table.location).glob("*.parquet")} - {*table.files()}


def test_of_two_upserts_one_commits_and_the_other_leaves_nothing(spark, events, any_address):
    options = events.options(any_address, mode=Mode.UPSERT)
    events.send(*((key(n % 7), b"%d" % n) for n in range(50)))

    def race():
        load_topic(options, spark=spark)
        events.send((key(1), b"later"))
        load_topic(options, spark=spark)

    with pytest.raises(StaleLedgerError):
        load_topic(options, spark=spark, listener=At(Step.WRITTEN, race))
    assert by_key(options.table) == events.newest
    assert audit(options.table) == []
    vacuum(options.table, FS, retention_hours=0)
    assert (
        sorted(map(str, Path(load_table(options.table, FS).location).glob("*.parquet")))
        == load_table(options.table, FS).files()
    )


def test_records_without_a_key_stop_an_upsert_or_are_counted(spark, events, any_address):
    options = events.options(any_address, mode=Mode.UPSERT)
    events.send((None, b"?"), (key(2), b"a"), (None, None))
    with pytest.raises(KeylessRecordsError, match="2 records have no key, the first in partition 0 at offset 0"):
        load_topic(options, spark=spark)
    assert read_ledger(options.table).partitions == {}
    report = load_topic(replace(options, accept_keyless_records=True), spark=spark)
    assert (report.upserted.keyless, by_key(options.table)) == (2, {key(2): b"a"})
    assert audit(options.table) == []


def everything_in(directory):
    """All bytes of all files, and what Parquet files hold behind compression, dictionaries and statistics."""
    for path in Path(directory).rglob("*"):
        if path.is_file():
            yield path.read_bytes()
            if path.suffix == ".parquet":
                parquet = pq.ParquetFile(path)
                yield repr(parquet.read().to_pylist()).encode()
                for group in range(parquet.num_row_groups):
                    columns = [parquet.metadata.row_group(group).column(n) for n in range(parquet.metadata.num_columns)]
                    yield repr([column.to_dict() for column in columns]).encode()


def test_an_erased_key_is_in_no_byte_after_vacuum(spark, events, tmp_path, any_address, monkeypatch):
    monkeypatch.setattr("millrace_pipelines.warehouse.iceberg.manifest_files.CODEC", "null")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    options = events.options(any_address, schema=str(tmp_path / "schema.json"))
    secret = b"alice@example.org"
    for _ in range(3):
        events.send(
            (key(1), b'{"name": "bob"}'), (secret, b'{"name": "alice@example.org"}'), (secret, b"not json alice")
        )
        load_topic(options, spark=spark)
        with suppress(TableRefusedError):  # Iceberg has none
            checkpoint(options.table, FS)
    leftover = Path(load_table(any_address, FS).location, f"part-deadbeef-00000-{uuid.uuid4()}.parquet")
    leftover.write_bytes(b"of a crashed load: " + secret)
    assert any(secret in some for some in everything_in(tmp_path))

    shown = run(app, ["warehouse", "erase", any_address, "--key", secret.hex(), "--key-format", "hex", "--json"])
    report = json.loads(shown.stdout)
    assert (report["rows"], report["dead_letters"]) == (3, 3)
    assert {row["key"] for row in stored(any_address)} == {key(1)}
    assert stored(dead_letters_dir(any_address)) == []
    shown = run(app, ["warehouse", "vacuum", any_address, "--retain", "0", "--json"])
    assert len(json.loads(shown.stdout)[0]["files"]) == 4
    assert not any(b"alice" in some for some in everything_in(tmp_path))
    assert audit(any_address) == []

    events.send((key(2), b'{"name": "eve"}'))
    load_topic(options, spark=spark)
    reload_topic(options, Selection(from_offset=0), spark=spark)
    vacuum(any_address, FS, retention_hours=0)
    vacuum(dead_letters_dir(any_address), FS, retention_hours=0)
    assert not any(b"alice" in some for some in everything_in(tmp_path))
    assert audit(any_address) == []


def test_a_reload_replaces_a_range_in_one_commit(spark, events, any_address):
    options = events.options(any_address)
    events.send(*((key(n), b"early %d" % n) for n in range(100)), timestamp_ms=1_700_000_000_000)
    load_topic(options, spark=spark)
    events.send(*((key(n), b"late %d" % n) for n in range(40)), timestamp_ms=1_800_000_000_000)
    load_topic(options, spark=spark)
    before, rows = read_ledger(options.table).partitions, sorted(stored(options.table), key=str)

    report = reload_topic(options, Selection(partitions=(1,), from_offset=10, until_offset=60), spark=spark)
    assert (report.rows, report.removed_rows) == (50, 50)
    assert [(span.partition, span.from_offset, span.until_offset) for span in report.replaced] == [(1, 10, 60)]
    when = datetime.fromtimestamp(1_750_000_000, UTC).isoformat()
    command = ["reload", events.topic, "--table", options.table, "--bootstrap", options.bootstrap, "--from-time", when]
    shown = run(app, ["warehouse", *command, "--json"])
    assert (shown.exit_code, json.loads(shown.stdout)["rows"]) == (0, 40), shown.output
    assert reload_topic(options, Selection(from_time_ms=-1), spark=spark).rows == len(rows)
    assert sorted(stored(options.table), key=str) == rows
    assert read_ledger(options.table).partitions == before
    assert audit(options.table) == []
    assert load_topic(options, spark=spark).version is None


def test_a_reload_mends_what_something_else_deleted_or_doubled(spark, events, any_address):
    options = events.options(any_address)
    for _ in range(2):
        events.send(*((key(n), b"%d" % n) for n in range(60)))
        load_topic(options, spark=spark)
    delete_elsewhere(options.table, "partition = 0 and offset in (3, 40)")
    lost = "partition 0: 1 offsets are not there: 3"
    assert told(audit(options.table)) == [lost, lost.replace(": 3", ": 40")]
    reload_topic(options, Selection(from_offset=20, until_offset=50), spark=spark)
    assert told(audit(options.table)) == [lost]
    reload_topic(options, Selection(partitions=(0,), until_offset=5), spark=spark)
    assert audit(options.table) == []
    Loads(options.table).add([7])
    assert "partition 0: 1 offsets are doubled: 7" in told(audit(options.table))
    reload_topic(options, Selection(until_offset=20), spark=spark)
    assert audit(options.table) == []
    assert offsets(options.table) == events.all_offsets()


def test_a_reload_mends_what_was_deleted_of_a_table_with_letters_and_erased_keys(spark, events, tmp_path, any_address):
    options = events.options(any_address, schema=declared(tmp_path, {"name": "n", "type": "integer"}))
    values = (b'{"n": 1}', b'{"n": 5000000000}', b"?")
    events.send(*((key(n), values[n // 2 % 3]) for n in range(60)))
    load_topic(options, spark=spark)
    letters = dead_letters_dir(options.table)
    before = offsets(options.table) + offsets(letters)
    declared(tmp_path, {"name": "n", "type": "long"})
    delete_elsewhere(options.table, "partition = 0 and offset = 9")
    delete_elsewhere(letters, "partition = 1 and offset = 8")
    assert len(audit(options.table)) == 2
    reload_topic(options, Selection(from_offset=5, until_offset=20), spark=spark)
    assert audit(options.table) == []
    assert offsets(options.table) + offsets(letters) == before
    assert erase(options.table, [key(6), key(7)], FS).rows == 2
    reload_topic(options, Selection(from_offset=0), spark=spark)
    assert audit(options.table) == []


def test_partitioned_tables_keep_their_folders_and_replayed_letters_count_once(spark, events, tmp_path, any_address):

    def declare(kind):
        fields = [{"name": "n", "type": kind}, {"name": "at", "type": "timestamp"}]
        declared = {"fields": fields, "event_time": {"column": "at", "granularity": "hour"}}
        (tmp_path / "schema.json").write_text(json.dumps(declared))

    declare("integer")
    options = events.options(any_address, schema=str(tmp_path / "schema.json"))
    for _ in range(2):
        events.send(*((key(n), b'{"n": %d, "at": "2026-01-01T%02d:30:00Z"}' % (n, n % 3)) for n in range(30)))
        events.send((key(7), b'{"n": 5000000000, "at": "2026-01-01T00:00:00Z"}'), (key(8), b'{"n": 1}'), (key(9), b"?"))
        load_topic(options, spark=spark)
    before = offsets(options.table)
    assert len(stored(dead_letters_dir(options.table))) == 4
    report = compact(options.table, FS, SystemClock())
    assert report.files_after == 4  # three hours, and rows without one
    assert offsets(options.table) == before
    assert audit(options.table) == []

    declare("long")
    assert replay(ReplayOptions(table=options.table, schema=options.schema, run_id="a replay")).replayed == 2
    assert audit(options.table) == []
    assert erase(options.table, [key(7)], FS, run_id="an erasure").rows == 4
    named = [commit.run_id for commit in commits_since(load_table(options.table, FS), -1, COMMITS_AT_ONCE)]
    assert [one for one in named if one is not None] == ["a replay", "an erasure"]
    assert audit(options.table) == []
    reload_topic(options, Selection(from_offset=3), spark=spark)
    assert audit(options.table) == []
    table = load_table(options.table, FS)
    for name, values in table.partition_values().items():
        found = [row for rows in read_rows(table, name) for row in rows.to_pylist()]
        assert {row["at"] and f"{row['at']:%Y-%m-%d %H:00:00}" for row in found} == {values["event_hour"]}
        assert key(7) not in {row["key"] for row in found}


def test_a_reload_beside_a_load_and_one_beside_a_reload(spark, events, any_address):
    options = events.options(any_address)
    events.send(*((key(n), b"%d" % n) for n in range(100)))
    load_topic(options, spark=spark)

    def race():
        events.send((key(0), b"more"), (key(1), b"more"))
        load_topic(options, spark=spark)
        reload_topic(options, Selection(until_offset=30), spark=spark)

    reload_topic(options, Selection(from_offset=20), spark=spark, listener=At(Step.WRITTEN, race))
    assert offsets(options.table) == events.all_offsets()
    assert audit(options.table) == []


def test_ranges_into_another_table_and_backfill_below_it(spark, events, tmp_path):
    options = events.options(tmp_path / "other")
    events.send(*((key(n), b"%d" % n) for n in range(200)))
    reload_topic(options, Selection(from_offset=60, until_offset=80), spark=spark)
    assert read_ledger(options.table).partitions == dict.fromkeys((0, 1), LedgerEntry(60, 80))
    assert len(offsets(options.table)) == 40
    load_topic(options, spark=spark)
    assert offsets(options.table) == events.all_offsets(60)
    with pytest.raises(ModeError, match="the gap between would never be filled"):
        reload_topic(options, Selection(from_offset=0, until_offset=50), spark=spark)

    shown = run(app, ["warehouse", "backfill", events.topic, "--table", options.table, "--bootstrap", options.bootstrap,
                      "--from-offset", "20"])  # fmt: skip
    assert shown.exit_code == 0, shown.output
    reload_topic(options, Selection(until_table_begins=True), spark=spark)
    assert reload_topic(options, Selection(until_table_begins=True), spark=spark).version is None
    assert offsets(options.table) == events.all_offsets()
    assert read_ledger(options.table).partitions == dict.fromkeys((0, 1), LedgerEntry(0, 100))
    assert audit(options.table) == []


def test_newest_records_do_not_go_on_with_another_log(spark, events, cluster, any_address):
    options = events.options(any_address, mode=Mode.UPSERT)
    events.send((key(0), b"1"), (key(0), b"2"))
    load_topic(options, spark=spark)
    Admin(cluster).delete_topic(events.topic)
    Admin(cluster).create_topic(events.topic, 2)
    events.send((key(0), b"3"))
    with pytest.raises(ModeError, match="may have higher offsets than newer records"):
        load_topic(replace(options, accept_recreated_topic=True), spark=spark)
    assert by_key(options.table) == {key(0): b"2"}
    assert read_ledger(options.table).next_offset(0) == 2


def declared(directory, *fields):
    (directory / "schema.json").write_text(json.dumps({"fields": list(fields)}))
    return str(directory / "schema.json")


def test_of_two_backfills_one_commits_and_the_letters_stay(spark, events, tmp_path, any_address):
    options = events.options(any_address, schema=declared(tmp_path, {"name": "n", "type": "integer"}))
    events.send(*((key(n), b'{"n": 1}' if n % 3 else b"?") for n in range(60)))
    reload_topic(options, Selection(from_offset=20), spark=spark)
    backfill = Selection(until_table_begins=True)
    race = At(Step.WRITTEN, lambda: reload_topic(options, backfill, spark=spark))
    with pytest.raises(StaleLedgerError):
        reload_topic(options, backfill, spark=spark, listener=race)
    assert offsets(options.table) + offsets(dead_letters_dir(options.table)) == events.all_offsets()
    assert audit(options.table) == []


def test_a_backfill_that_stopped_after_its_letters_is_made_again(spark, events, tmp_path, any_address):
    def stop():
        raise InterruptedError

    options = events.options(any_address, schema=declared(tmp_path, {"name": "n", "type": "integer"}))
    events.send(*((key(n), b'{"n": 1}' if n % 3 else b"?") for n in range(60)))
    reload_topic(options, Selection(from_offset=20), spark=spark)
    backfill = Selection(until_table_begins=True)
    with pytest.raises(InterruptedError):
        reload_topic(options, backfill, spark=spark, listener=At(Step.DEAD_LETTERS_COMMITTED, stop))
    assert audit(options.table) == []
    reload_topic(options, backfill, spark=spark)
    assert offsets(options.table) + offsets(dead_letters_dir(options.table)) == events.all_offsets()
    assert audit(options.table) == []


def test_an_erased_key_does_not_come_back_as_a_letter_nor_in_a_file(spark, events, tmp_path, any_address):
    options = events.options(any_address, schema=declared(tmp_path, {"name": "n", "type": "string"}))
    events.send((b"alice", b'{"n": "alice"}'), (key(1), b'{"n": "bob"}'))
    load_topic(options, spark=spark)
    erase(options.table, [b"alice"], FS)
    vacuum(options.table, FS, retention_hours=0)
    reload_topic(options, Selection(from_offset=0), spark=spark)
    declared(tmp_path, {"name": "m", "type": "string", "nullable": False})
    reload_topic(options, Selection(from_offset=0), spark=spark)
    assert [row["key"] for row in stored(dead_letters_dir(options.table))] == [key(1)]
    assert not any(b"alice" in some for some in everything_in(tmp_path))
    assert audit(options.table) == []


def test_letters_of_a_load_that_has_not_ended_are_left_and_told(spark, events, tmp_path, any_address):
    def stop():
        raise InterruptedError

    options = events.options(any_address, schema=declared(tmp_path, {"name": "n", "type": "integer"}))
    events.send((key(0), b"?"), (key(0), b'{"n": 1}'), (key(2), b"?"))
    with pytest.raises(InterruptedError):
        load_topic(options, spark=spark, listener=At(Step.DEAD_LETTERS_COMMITTED, stop))
    report = erase(options.table, [key(0)], FS)
    assert (report.dead_letters, report.left) == (0, 1)
    assert audit(options.table) == []
    load_topic(options, spark=spark)
    report = erase(options.table, [key(0)], FS)
    assert (report.rows, report.dead_letters, report.left) == (1, 1, 0)
    assert [row["key"] for row in stored(dead_letters_dir(options.table))] == [key(2)]
    assert audit(options.table) == []


def test_a_reload_of_newest_records_leaves_those_without_a_key_out(spark, events, any_address):
    options = events.options(any_address, mode=Mode.UPSERT, accept_keyless_records=True)
    events.send((None, b"?"), (key(2), b"a"))
    load_topic(options, spark=spark)
    with pytest.raises(KeylessRecordsError):
        reload_topic(replace(options, accept_keyless_records=False), Selection(from_offset=0), spark=spark)
    command = ["reload", events.topic, "--table", options.table, "--bootstrap", options.bootstrap]
    shown = run(app, ["warehouse", *command, "--accept-keyless-records"])
    assert shown.exit_code == 0, shown.output
    assert by_key(options.table) == {key(2): b"a"}
    assert len(unnamed_files(options.table)) == 1, "but for the row of before, whatever no commit names is gone"
    assert audit(options.table) == []


def test_a_table_of_newest_records_is_reloaded_up_to_its_end_only(spark, events, any_address):
    options = events.options(any_address, mode=Mode.UPSERT)
    events.send(*((key(n % 9), b"%d" % n) for n in range(90)), (key(4), None))
    load_topic(options, spark=spark)
    with pytest.raises(ModeError, match="deleted ones would come back"):
        reload_topic(options, Selection(until_offset=20), spark=spark)
    reload_topic(options, Selection(from_offset=5), spark=spark)
    assert by_key(options.table) == events.newest
    assert audit(options.table) == []


def test_a_reload_of_newest_records_brings_back_none_that_a_load_deletes_meanwhile(spark, events, any_address):
    options = events.options(any_address, mode=Mode.UPSERT)
    events.send((key(0), b"1"), (key(1), b"1"))
    load_topic(options, spark=spark)

    def delete():
        events.send((key(0), None))
        load_topic(options, spark=spark)

    with pytest.raises(StaleLedgerError):
        reload_topic(options, Selection(from_offset=0), spark=spark, listener=At(Step.WRITTEN, delete))
    assert by_key(options.table) == events.newest
    reload_topic(options, Selection(from_offset=0), spark=spark)
    assert by_key(options.table) == events.newest
    assert audit(options.table) == []


def test_upkeep_beside_a_running_load_disturbs_neither(spark, events, tmp_path):
    options = events.options(tmp_path / "t")
    for _ in range(3):
        events.send(*((key(n), b"%d" % n) for n in range(20)))
        load_topic(options, spark=spark)
    events.send(*((key(n), b"%d" % n) for n in range(100)))
    policy, reports = MaintenancePolicy(min_small_files=2, min_commits=1, retention_hours=0), []
    load_topic(
        options,
        spark=spark,
        listener=At(Step.WRITTEN, lambda: reports.extend(maintain(options.table, FS, SystemClock(), policy))),
    )
    [report] = reports
    assert (report.compaction.files_before, report.compaction.files_after) == (6, 1)
    assert (len(report.vacuum.files), report.vacuum.running) == (6, 4)
    assert report.checkpoint_version == 4
    assert offsets(options.table) == events.all_offsets()
    assert audit(options.table) == []
    shown = run(app, ["warehouse", "upkeep", options.table, "--min-small-files", "2", "--retain", "0"])
    assert "5 files" in shown.stdout
    assert len(list(Path(options.table).glob("*.parquet"))) == 1
    assert erase(options.table, [key(0)], FS).rows == 4
    assert audit(options.table) == []
