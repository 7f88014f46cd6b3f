"""Records that a table's envelope can't show as they are: header keys that are no UTF-8, times outside of the calendar.

Nothing of a producer's making stops a reader: clients and the Spark source show such a record, a load makes a letter of
it, with what the envelope hides, and a replay makes a row of that letter.
"""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.errors import ErrorCode
from millrace.fs import OsFileSystem
from millrace.records.batch import HEADER_BYTES, read_header, sealed_batch
from millrace.records.record import NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.times import MAX_DATETIME_MS, MIN_DATETIME_MS
from millrace.wire.api import ApiKey
from millrace_ops.cli.dead_letters import app
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.spark.source import MillraceDataSource
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener, Step
from millrace_pipelines.warehouse.load.replay import ReplayOptions, replay
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.broker_properties import KEEPS_ALL
from millrace_support.command_runner import CommandRunner
from millrace_support.raw import RawConnection

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TIMEOUT_S = 120
PLAIN_MS = 1_700_000_000_000
MICROSECONDS = 1_700_000_000_000_000
KEYS = [b"\xff", b"\xc3(", b"ok\x80", b"\xed\xa0\x80", b"\xf8\xa1\xa1\xa1\xa1"]
TIMES = [MICROSECONDS, -MICROSECONDS, MAX_DATETIME_MS + 1, MIN_DATETIME_MS - 1, 2**63 - 1, -(2**63)]
SHOWN_TIMES = [PLAIN_MS, MAX_DATETIME_MS, MIN_DATETIME_MS, 0, -2]


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("unshown", local_master(2)) as session:
        session.dataSource.register(MillraceDataSource)
        yield session


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", properties=KEEPS_ALL) as process:
        yield process


def with_header_key(key):
    """Returns a batch of one record, whose header has these bytes for its key."""
    stand_in = "x" * len(key)
    headers = ((stand_in, b"value"), ("plain", None))
    batch = encode_batch([NewRecord(b'{"id": 1}', key, PLAIN_MS, headers)])
    body = batch[HEADER_BYTES:]
    assert body.count(stand_in.encode()) == 1
    return sealed_batch(read_header(batch), body.replace(stand_in.encode(), key))


@pytest.fixture(scope="module")
def topic(broker):
    """The topic with records of all kinds, in one partition: keys, times, times that are shown."""
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("unshown", 1)
    batches = [with_header_key(key) for key in KEYS]
    batches += [encode_batch([NewRecord(b'{"id": 2}', timestamp_ms=time_ms)]) for time_ms in (*TIMES, *SHOWN_TIMES)]
    with RawConnection(broker.bootstrap) as raw:
        for batch in batches:
            data = [{"name": "unshown", "partition_data": [{"index": 0, "records": batch}]}]
            fields = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": data}
            answer = raw.request(ApiKey.PRODUCE, 8, fields)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return "unshown"


@pytest.fixture(params=["raw", "typed"])
def options(request, broker, topic, tmp_path):
    given = LoadOptions(topic=topic, table=str(tmp_path / "table"), bootstrap=broker.bootstrap)
    if request.param == "raw":
        return given
    (tmp_path / "schema.json").write_text(json.dumps({"fields": [{"name": "id", "type": "long"}]}))
    return replace(given, schema=str(tmp_path / "schema.json"))


def stored(location):
    table = Table.load(location, OsFileSystem())
    rows = table.dataset().to_table().sort_by("offset")
    return rows.to_pylist()


def shown_headers(key):
    return [{"key": key.decode(errors="replace"), "value": b"value"}, {"key": "plain", "value": None}]


def check_letters(letters):
    assert [letter["offset"] for letter in letters] == list(range(len(KEYS) + len(TIMES)))
    for letter, key in zip(letters[: len(KEYS)], KEYS, strict=True):
        assert (letter["reason"], letter["key"], letter["header_keys"]) == ("header-key", key, [key, b"plain"])
        assert (letter["headers"], letter["timestamp_ms"]) == (shown_headers(key), None)
    for letter, time_ms in zip(letters[len(KEYS) :], TIMES, strict=True):
        assert (letter["reason"], letter["timestamp"], letter["timestamp_ms"]) == ("timestamp", None, time_ms)
        assert (letter["value"], letter["header_keys"]) == (b'{"id": 2}', None)


def test_a_load_makes_letters_that_a_replay_makes_rows_of(spark, options):
    report = load_topic(options, spark=spark)
    assert (report.rows, report.dead_letters) == (len(SHOWN_TIMES), len(KEYS) + len(TIMES))
    rows = stored(options.table)
    assert [row["timestamp"].timestamp() * 1000 for row in rows] == SHOWN_TIMES
    check_letters(stored(dead_letters_dir(options.table)))
    assert audit(options.table, bootstrap=options.bootstrap) == []
    reload_topic(replace(options, schema=None), Selection(from_offset=0, until_offset=3), spark=spark)
    check_letters(stored(dead_letters_dir(options.table)))
    assert load_topic(options, spark=spark).version is None

    one = CommandRunner().invoke(app, ["show", options.table, "0", "2", "--json"])
    assert json.loads(one.stdout)[0]["header_keys"] == [{"base64": "b2uA"}, "plain"]
    other = CommandRunner().invoke(app, ["show", options.table, "0", str(len(KEYS))])
    assert re.search(rf"time in ms +{MICROSECONDS}\n", other.stdout)
    replayed = replay(ReplayOptions(table=options.table))
    assert (replayed.replayed, replayed.staying) == (len(KEYS) + len(TIMES), {})
    rows = stored(options.table)
    assert [row["offset"] for row in rows] == list(range(len(KEYS) + len(TIMES) + len(SHOWN_TIMES)))
    assert [row["headers"] for row in rows[: len(KEYS)]] == [shown_headers(key) for key in KEYS]
    assert [row["timestamp"] for row in rows[len(KEYS) :][: len(TIMES)]] == [None] * len(TIMES)
    assert audit(options.table, bootstrap=options.bootstrap) == []


def test_a_load_that_stops_between_its_commits_makes_no_letter_twice(spark, options):
    class Stop(SilentListener):
        def reached(self, step):
            if step is Step.DEAD_LETTERS_COMMITTED:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_topic(options, spark=spark, listener=Stop())
    assert load_topic(options, spark=spark).rows == len(SHOWN_TIMES)
    check_letters(stored(dead_letters_dir(options.table)))
    assert audit(options.table, bootstrap=options.bootstrap) == []


def test_the_spark_source_shows_them(spark, broker, topic):
    rows = spark.read.format("millrace").options(bootstrap=broker.bootstrap, topic=topic).load().orderBy("offset")
    found = rows.selectExpr("headers", "unix_millis(timestamp) at").collect()
    assert [[header.asDict() for header in row.headers] for row in found[: len(KEYS)]] == [
        shown_headers(key) for key in KEYS
    ]
    assert [row.at for row in found[len(KEYS) :]] == [None] * len(TIMES) + SHOWN_TIMES


def test_clients_show_them(broker, topic):
    with Cluster(broker.bootstrap) as cluster:
        found = list(SimpleConsumer(cluster).messages(topic, 0, until_offset=len(KEYS) + len(TIMES)))
    shown = [((header["key"], header["value"]) for header in shown_headers(key)) for key in KEYS]
    assert [record.headers for record in found[: len(KEYS)]] == [tuple(headers) for headers in shown]
    assert [record.timestamp_ms for record in found[len(KEYS) :]] == TIMES


@pytest.mark.parametrize("form", [["--json"], ["--print-headers", "--print-timestamp"], ["--format", r"%h %T\n"]])
def test_consume_prints_them(broker, topic, form):
    count = len(KEYS) + len(TIMES) + len(SHOWN_TIMES)
    command = [MILLRACE, "consume", topic, "--bootstrap", broker.bootstrap]
    result = subprocess.run([*command, *form], capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
    lines = result.stdout.decode().splitlines()
    assert len(lines) == count
    assert all(key.decode(errors="replace") in line for key, line in zip(KEYS, lines, strict=False))
    assert str(MICROSECONDS) in lines[len(KEYS)]
