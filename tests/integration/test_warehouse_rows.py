"""Typed rows of real events through a real broker, registry and Spark: formats, evolution, partitions, dead letters."""

import io
import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.cli.dead_letters import app
from millrace_ops.demo.flights import events, read_flights
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import SchemaChangedError, SchemaError, StaleLedgerError
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load import replay as replay_module
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener, Step
from millrace_pipelines.warehouse.load.replay import ReplayOptions, replay
from millrace_pipelines.warehouse.payload.protobuf import compile_proto, protobuf_decoder
from millrace_pipelines.warehouse.payload.schema import read_payload_schema
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.tables import open as open_module
from millrace_pipelines.warehouse.tables.spark_table import spark_table
from millrace_support.broker_properties import KEEPS_ALL
from millrace_support.command_runner import CommandRunner
from millrace_support.schema_registry import SchemaRegistryServer
from millrace_support.small_tables import open_tables

KINDS = {pa.int64(): "long", pa.string(): "string"}
run = CommandRunner().invoke


@cache
def flights():
    """Some flights; all of them are read, so this is not done while tests are collected."""
    return read_flights().slice(0, 2000)


def fields_of_flights():
    return [{"name": field.name, "type": KINDS.get(field.type, "timestamp")} for field in flights().schema]


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker"), properties=KEEPS_ALL) as process:
        yield process


@pytest.fixture(scope="module")
def registry():
    with SchemaRegistryServer() as running:
        yield running


@pytest.fixture
def flow(server, spark, tmp_path, request):
    """A topic of this test's own, and its table."""
    return Flow(server.bootstrap, spark, tmp_path, re.sub(r"[^a-z_-]", ".", request.node.name))


class Flow:
    def __init__(self, bootstrap, spark, directory, topic):
        self.bootstrap, self.spark, self.directory, self.topic = bootstrap, spark, directory, topic
        self.table = str(directory / "table")
        with Cluster(bootstrap) as cluster:
            Admin(cluster).create_topic(topic, 2)

    def send(self, values, partition=0):
        records = [value if isinstance(value, NewRecord) else NewRecord(value) for value in values]
        with Cluster(self.bootstrap) as cluster:
            SyncProducer(cluster).send(self.topic, partition, records)

    def declare(self, **schema):
        path = self.directory / "schema.json"
        path.write_text(json.dumps(schema))
        return str(path)

    def load(self, schema=None, listener=None, **options):
        given = LoadOptions(topic=self.topic, table=self.table, bootstrap=self.bootstrap, schema=schema)
        return load_topic(replace(given, **options), spark=self.spark, listener=listener)

    def rows(self, directory=None):
        table = Table.load(directory or self.table, OsFileSystem())
        found = DeltaTable(table.location).to_pyarrow_dataset().to_table()
        return found.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()

    def letters(self):
        return self.rows(dead_letters_dir(self.table))

    def replay(self, **options):
        return replay(ReplayOptions(table=self.table, **options))

    def check_once(self, total):
        assert audit(self.table) == []
        waiting = [letter for letter in self.letters() if letter["replay"] is None]
        once = Counter((row["partition"], row["offset"]) for row in [*self.rows(), *waiting])
        assert set(once.values()) == {1}
        assert len(once) == total


class Crash(SilentListener):
    """Stops a load, or a replay, at a step."""

    def __init__(self, step):
        self.step = step

    def reached(self, step):
        if step == self.step:
            raise KeyboardInterrupt


def without_envelope(rows):
    return [{name: row[name] for name in flights().schema.names} for row in rows]


def avro_schema(*names):
    kinds = {field["name"]: field["type"] for field in fields_of_flights()}
    kinds["time_hour"] = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": name, "type": ["null", kinds[name]], "default": None} for name in names]
    return {"type": "record", "name": "Flight", "fields": fields}


def avro_values(schema, rows, schema_id=None):
    parsed = fastavro.parse_schema(schema)
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        yield (b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")) + out.getvalue()


def proto_text():
    kinds = {"long": "optional int64", "string": "optional string", "timestamp": "google.protobuf.Timestamp"}
    body = "".join(
        f"{kinds[f['type']]} {f['name']} = {number};" for number, f in enumerate(fields_of_flights(), start=1)
    )
    return f'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Flight {{ {body} }}'


def proto_values(rows, prefix=b""):
    message_type = protobuf_decoder(compile_proto("flight.proto", {"flight.proto": proto_text()}), "Flight")._class
    for row in rows:
        message = message_type(
            **{name: value for name, value in row.items() if value is not None and name != "time_hour"}
        )
        message.time_hour.FromDatetime(row["time_hour"])
        yield prefix + message.SerializeToString()


@pytest.mark.parametrize("kind", ["json", "avro", "protobuf", "avro-registry", "protobuf-registry"])
def test_flights_arrive_as_they_were(flow, registry, kind):
    rows = flights().to_pylist()
    subject = f"{flow.topic}-value"
    if kind == "json":
        values, schema = [event.value for event in events(flights())], flow.declare(fields=fields_of_flights())
    elif kind == "avro":
        declared = avro_schema(*flights().schema.names)
        (flow.directory / "flight.avsc").write_text(json.dumps(declared))
        values, schema = avro_values(declared, rows), flow.declare(format="avro", schema="flight.avsc")
    elif kind == "protobuf":
        (flow.directory / "flight.proto").write_text(proto_text())
        schema = flow.declare(format="protobuf", schema="flight.proto", message="Flight")
        values = proto_values(rows)
    elif kind == "avro-registry":
        declared = avro_schema(*flights().schema.names)
        schema_id = registry.register(subject, json.dumps(declared))
        values, schema = avro_values(declared, rows, schema_id), flow.declare(format="avro", registry=registry.url)
    else:
        schema_id = registry.register(subject, proto_text(), "PROTOBUF")
        values = proto_values(rows, b"\0" + schema_id.to_bytes(4, "big") + b"\0")
        schema = flow.declare(format="protobuf", registry=registry.url)
    flow.send([*values, None, b"\xffnothing"])
    report = flow.load(schema)
    assert (report.rows, report.dead_letters) == (len(rows) + 1, 1)
    assert without_envelope(flow.rows()[:-1]) == rows
    flow.check_once(len(rows) + 2)


def test_a_schema_grows_in_the_registry(flow, registry):
    subject, rows = f"{flow.topic}-value", flights().slice(0, 20).to_pylist()
    small = avro_schema("carrier", "flight")
    first = registry.register(subject, json.dumps(small))
    flow.send(avro_values(small, rows, first))
    assert flow.load(flow.declare(format="avro", registry=registry.url)).rows == 20
    large = avro_schema("carrier", "flight", "dest")
    second = registry.register(subject, json.dumps(large))
    flow.send([*avro_values(large, rows, second), *avro_values(small, rows, first)])
    assert flow.load().dead_letters == 0
    assert [row["dest"] for row in flow.rows()] == [None] * 20 + [row["dest"] for row in rows] + [None] * 20
    assert [row["flight"] for row in flow.rows()] == [row["flight"] for row in rows] * 3
    third = avro_schema("carrier", "tailnum")
    late = registry.register(f"{subject}-elsewhere", json.dumps(third))
    flow.send(avro_values(third, rows, late))
    assert (flow.load().dead_letters, flow.letters()[0]["reason"]) == (20, "newer-schema")
    assert {(letter["schema_id"], letter["replay"]) for letter in flow.letters()} == {(late, None)}
    registry.register(subject, json.dumps(third))
    assert (flow.replay().replayed, flow.rows()[-1]["tailnum"]) == (20, rows[-1]["tailnum"])
    flow.check_once(80)


STEPS = [
    [
        {"name": "id", "type": "integer"},
        {"name": "in", "type": {"type": "struct", "fields": [{"name": "x", "type": "float"}]}},
    ],
    [
        {"name": "id", "type": "long"},
        {
            "name": "in",
            "type": {"type": "struct", "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "string"}]},
        },
        {"name": "new", "type": {"type": "map", "keyType": "string", "valueType": "long"}},
    ],
    [{"name": "id", "type": "decimal(22,2)"}],
]


@pytest.mark.parametrize("step", [None, "declared", "columns", Step.WRITTEN])
def test_columns_are_added_widened_and_dropped_whatever_crashes(flow, monkeypatch, step):
    flow.send([b'{"id": 1, "in": {"x": 0.5}}'])
    flow.load(flow.declare(fields=STEPS[0]))
    flow.send([b'{"id": 1099511627776, "in": {"x": 0.1, "y": "z"}, "new": {"k": 1}}'])
    schema = flow.declare(fields=STEPS[1])
    if step is not None:
        with monkeypatch.context() as patch:
            if step == "declared":
                patch.setattr(open_module, "_rewrite", Crash(step).reached)
                patch.setattr(open_module, "_rewrite", lambda *_: Crash(step).reached(step))
            if step == "columns":
                patch.setattr("millrace_pipelines.warehouse.load.load._loaded", lambda *_: Crash(step).reached(step))
            with pytest.raises(KeyboardInterrupt):
                flow.load(schema, listener=Crash(step))
        assert [row["id"] for row in flow.rows()] == [1]
        schema = None
    flow.load(schema)
    assert [(row["id"], row["in"], row["new"]) for row in flow.rows()] == [
        (1, {"x": 0.5, "y": None}, None),
        (2**40, {"x": 0.1, "y": "z"}, [("k", 1)]),
    ]
    flow.send([b'{"id": 12345678901234567890.25}'])
    flow.load(flow.declare(fields=STEPS[2]))
    assert [str(row["id"]) for row in flow.rows()] == ["1.00", "1099511627776.00", "12345678901234567890.25"]
    assert flow.rows()[-1]["in"] is None
    assert spark_table(flow.spark, flow.table).selectExpr("sum(id) total").first().total is not None
    flow.check_once(3)


def test_another_type_stops_the_load_or_makes_letters(flow):
    flow.send([b'{"id": 1}'])
    flow.load(flow.declare(fields=[{"name": "id", "type": "long"}]))
    flow.send([b'{"id": "one"}', b'{"id": 2}'])
    changed = [{"name": "id", "type": "string"}]
    with pytest.raises(SchemaChangedError, match="column id is long in the table and string in the schema"):
        flow.load(flow.declare(fields=changed))
    assert flow.load(flow.declare(fields=changed, changed_types="dead-letter")).dead_letters == 1
    assert [row["id"] for row in flow.rows()] == [1, 2]
    flow.check_once(3)


def test_days_are_partitions_and_late_rows_find_theirs(flow):
    time_ms = 1_370_044_800_000  # 2013-06-01T00:00:00Z
    days = ["2013-06-01", "2013-05-31", "2013-05-01", "0001-01-01"]
    fields = [{"name": "at", "type": "timestamp"}]
    event_time = {"column": "at", "late_after": "7d"}
    flow.send([NewRecord(b'{"at": "%sT01:00:00Z"}' % day.encode(), timestamp_ms=time_ms) for day in days])
    report = flow.load(flow.declare(fields=fields, event_time=event_time))
    assert (report.rows, report.late, report.dead_letters) == (3, 1, 1)
    assert Table.load(flow.table, OsFileSystem()).partition_columns == ["event_date"]
    assert [str(row["event_date"]) for row in flow.rows()] == days[:3]
    flow.send([NewRecord(b'{"at": "2013-05-01"}', timestamp_ms=time_ms)])
    schema = flow.declare(fields=fields, event_time=event_time | {"late": "dead-letter"})
    assert flow.load(schema).late == 1
    assert Counter(letter["reason"] for letter in flow.letters()) == {"event-time": 1, "late": 1}
    assert flow.replay(schema=flow.declare(fields=fields, event_time=event_time)).replayed == 1
    assert sorted(str(row["event_date"]) for row in flow.rows()) == sorted([*days[:3], "2013-05-01"])
    with pytest.raises(SchemaError, match="partitioned by event_date"):
        flow.load(flow.declare(fields=fields))
    flow.check_once(5)


def test_hours_of_the_raw_envelope_survive_a_widening(flow):
    flow.send([NewRecord(b"x", timestamp_ms=3_600_000 * hour) for hour in (400_000, 400_001, 400_001)])
    event_time = {"column": "timestamp", "granularity": "hour"}
    assert flow.load(flow.declare(format="raw", event_time=event_time)).rows == 3
    flow.send([NewRecord(b'{"n": 1}', timestamp_ms=3_600_000 * 400_001)])
    flow.load(flow.declare(fields=[{"name": "n", "type": "integer"}], event_time=event_time))
    flow.load(flow.declare(fields=[{"name": "n", "type": "long"}], event_time=event_time))
    assert Counter(row["event_hour"].hour for row in flow.rows()) == {16: 1, 17: 3}
    assert [row["n"] for row in flow.rows()] == [None, None, None, 1]
    by_hour = spark_table(flow.spark, flow.table).groupBy("event_hour").count().collect()
    assert {row.event_hour.hour: row["count"] for row in by_hour} == {16: 1, 17: 3}
    flow.check_once(4)


GOOD, BAD, WORSE = b'{"id": 1}', b'{"id": "1"}', b"not json"
STRICT, MENDED = [{"name": "id", "type": "long"}], [{"name": "id", "type": "long"}, {"name": "more", "type": "string"}]


@pytest.fixture
def lettered(flow):
    """A table with two waiting letters that a wider schema takes, and one that none does."""
    strict = [{"name": "id", "type": "long"}, {"name": "more", "type": "string", "nullable": False}]
    flow.send([b'{"id": 1, "more": "x"}', GOOD, WORSE])
    flow.send([GOOD, BAD], partition=1)
    assert flow.load(flow.declare(fields=strict)).dead_letters == 4
    return flow


@pytest.mark.parametrize("step", [None, "written", "rows committed", "letters marked"])
def test_letters_are_replayed_once_whatever_crashes(lettered, step):
    schema = lettered.declare(fields=MENDED)
    options = ReplayOptions(table=lettered.table, schema=schema)
    trial = replay(replace(options, dry_run=True))
    assert (trial.selected, trial.replayed, dict(trial.staying)) == (4, 2, {"malformed": 1, "type": 1})
    lettered.check_once(5)
    if step is None:
        report = replay(options)
        assert (report.selected, report.replayed, dict(report.staying)) == (4, 2, {"malformed": 1, "type": 1})
    else:
        with pytest.raises(KeyboardInterrupt):
            replay(options, on_step=Crash(step).reached)
        lettered.check_once(5) if step != "rows committed" else None
        again = replay(options)
        assert again.replayed == (2 if step == "written" else 0)
        assert again.finished == (1 if step == "rows committed" else None)
    assert [(letter["partition"], letter["offset"]) for letter in lettered.letters() if letter["replay"] == 1] == [
        (0, 1),
        (1, 0),
    ]
    assert len(lettered.rows()) == 3
    lettered.check_once(5)
    assert replay(options).replayed == 0


def test_of_two_replays_one_is_refused(lettered):
    schema = lettered.declare(fields=MENDED)
    options = ReplayOptions(table=lettered.table, schema=schema)

    class Second:
        def reached(self, step):
            if step == "written":
                assert replay(options).replayed == 2

    with pytest.raises(StaleLedgerError):
        replay(options, on_step=Second().reached)
    lettered.check_once(5)


class Then(SilentListener):
    """Calls `action` when a load is at a step for the `times`-th time."""

    def __init__(self, step, action, times=1):
        self.step, self.action, self.times = step, action, times

    def reached(self, step):
        if step == self.step:
            self.times -= 1
            if self.times == 0:
                self.action()


def test_a_refused_replay_keeps_what_it_has_committed(lettered, monkeypatch):
    monkeypatch.setattr(replay_module, "MAX_DEAD_LETTERS_PER_COMMIT", 1)
    options = ReplayOptions(table=lettered.table, schema=lettered.declare(fields=MENDED))
    with pytest.raises(StaleLedgerError):
        replay(options, on_step=Then("written", lambda: replay(options), times=2).reached)
    lettered.check_once(5)
    assert len(lettered.rows()) == 3


def test_a_reload_beside_a_replay_makes_no_row_twice(lettered):
    schema = lettered.declare(fields=MENDED)
    options = LoadOptions(topic=lettered.topic, table=lettered.table, bootstrap=lettered.bootstrap, schema=schema)
    reload = Then("written", lambda: reload_topic(options, Selection(from_offset=0), spark=lettered.spark))
    with pytest.raises(StaleLedgerError):
        replay(ReplayOptions(table=lettered.table, schema=schema), on_step=reload.reached)
    lettered.check_once(5)
    assert lettered.replay().replayed == 0


def test_letters_that_a_bounded_load_has_not_come_to_stay_known(flow):
    flow.send([GOOD, BAD, GOOD, GOOD, GOOD, WORSE])
    with pytest.raises(KeyboardInterrupt):
        flow.load(flow.declare(fields=STRICT), listener=Crash(Step.DEAD_LETTERS_COMMITTED))
    stricter = flow.declare(fields=[*STRICT, {"name": "x", "type": "long", "nullable": False}])
    assert flow.load(stricter, max_records_per_run=3).dead_letters == 3
    assert flow.load().dead_letters == 3
    flow.check_once(6)


def test_a_load_whose_columns_were_widened_meanwhile_is_refused(flow):
    flow.send([b'{"id": 1}'])
    flow.load(flow.declare(fields=[{"name": "id", "type": "integer"}]))
    flow.send([b'{"id": 2}'])
    ledger, wider = read_ledger(flow.table), flow.declare(fields=STRICT)
    widen = Then(
        Step.WRITTEN,
        lambda: open_tables(flow.table, flow.topic, ledger.topic_id, read_payload_schema(wider), OsFileSystem()),
    )
    with pytest.raises(StaleLedgerError):
        flow.load(listener=widen)
    flow.load()
    assert [row["id"] for row in flow.rows()] == [1, 2]
    assert {str(pq.read_schema(path).field("id").type) for path in Table.load(flow.table, OsFileSystem()).files()} == {
        "int64"
    }


def test_a_schema_that_changed_between_the_two_commits_of_a_load_moves_no_letter(flow):
    flow.send([GOOD, BAD, WORSE])
    with pytest.raises(KeyboardInterrupt):
        flow.load(flow.declare(fields=STRICT), listener=Crash(Step.DEAD_LETTERS_COMMITTED))
    assert (flow.rows(), len(flow.letters())) == ([], 2)
    report = flow.load(
        flow.declare(fields=[{"name": "id", "type": "long"}, {"name": "x", "type": "long", "nullable": False}])
    )
    assert (report.rows, report.dead_letters) == (0, 3)
    flow.check_once(3)


def test_the_command_line(lettered):
    table = lettered.table
    listed = json.loads(run(app, ["list", table, "--json", "--each", "1"]).stdout)
    counts = {reason["reason"]: (reason["letters"], reason["waiting"]) for reason in listed["reasons"]}
    assert counts == {"missing": (2, 2), "malformed": (1, 1), "type": (1, 1)}
    assert len(listed["letters"]) == 1
    assert "missing" in run(app, ["list", table]).stdout
    assert "not json" in run(app, ["show", table, "0", "2"]).stdout
    assert run(app, ["show", table, "0", "77"]).exit_code == 1
    schema = lettered.declare(fields=MENDED)
    trial = run(app, ["replay", table, "--schema", schema, "--dry-run"])
    assert "2 of 4 dead letters would become rows" in trial.stdout
    done = run(app, ["replay", table, "--schema", schema, "--reason", "missing", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["replayed"]) == (0, 2)
    left = run(app, ["replay", table, "--partition", "1"])
    assert (left.exit_code, "0 of 1 dead letters are rows now" in left.stdout) == (1, True)
    assert json.loads(run(app, ["show", table, "0", "1", "--json"]).stdout)[0]["replay"] == 1
