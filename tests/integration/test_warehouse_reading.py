"""A loaded table through everything that reads it, by the examples of docs/warehouse-reading.md; and its commands.

The examples of docs/warehouse.md and docs/warehouse-modes.md, which load, run here, too: the session is there.
"""

import contextlib
import csv
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import termios
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from rich.cells import cell_len
from tenacity import retry, retry_if_exception_message, stop_after_attempt

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.java import find_java
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.cli.warehouse import app
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.choices import Compression
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.log_actions import digests_of
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_support.broker_properties import KEEPS_ALL
from millrace_support.command_runner import CommandRunner
from millrace_support.pages import blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "warehouse-reading.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
DELTA_JARS = ROOT / ".peers" / "spark-delta" / "libs"
SCHEMA = {"fields": [{"name": "id", "type": "long", "nullable": False}]}
ROWS = {0: 2998, 1: 500}
ERRORS = {"not a JSON object: Expecting value at character 0": 1, "field id: expected number, found string": 1}
TIMEOUT_S = 240
# A program of its own, since a JVM takes jars in at its start only.
READS_DELTA = """
import sys
from pyspark.sql import SparkSession

settings = {
    "spark.jars": sys.argv[1],
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
rows = spark.read.format("delta").load(sys.argv[2]).groupBy("partition").count().orderBy("partition")
print([list(row) for row in rows.collect()])
log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, sys.argv[2])
snapshot = log.update(False, getattr(log, "update$default$2")(), getattr(log, "update$default$3")())
log.checkpoint(snapshot, spark._jvm.scala.Option.empty())
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", properties=KEEPS_ALL) as process:
        yield process


@pytest.fixture(scope="module")
def spark(warm_processes):
    with spark_session("reading", local_master(2)) as session:
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.shuffle.partitions", "1")
        yield session


@pytest.fixture(scope="module")
def topic(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("flights", 2)
        values = [b'{"id": %d}' % number for number in range(3000)]
        values[7], values[8] = b"not json", b'{"id": "x"}'
        SyncProducer(cluster).send("flights", 0, [NewRecord(value) for value in values])
        SyncProducer(cluster).send("flights", 1, [NewRecord(value) for value in values[2500:]])
    return "flights"


@pytest.fixture(scope="module")
def table(broker, topic, spark, tmp_path_factory):
    """Loaded in two runs of several tasks."""
    directory = tmp_path_factory.mktemp("warehouse")
    (directory / "schema.json").write_text(json.dumps(SCHEMA))
    options = LoadOptions(
        topic=topic, table=str(directory / "flights"), bootstrap=broker.bootstrap,
        schema=str(directory / "schema.json"), max_records_per_task=700, max_records_per_run=2000,
    )  # fmt: skip
    while load_topic(options, spark=spark).version is not None:
        pass
    return options.table


@pytest.fixture(scope="module")
def names(broker, topic, table, spark, tmp_path_factory):
    """What the examples find, and what they leave for one another."""
    directory = tmp_path_factory.mktemp("stream")
    return {"bootstrap": broker.bootstrap, "topic": topic, "table": table, "spark": spark,
            "out": str(directory / "out"), "checkpoint": str(directory / "checkpoint")}  # fmt: skip


def test_the_page_has_examples_for_all():
    page = "\n".join(EXAMPLES)
    for reader in (
        "spark.read",
        "spark.readStream",
        "spark_table",
        "duckdb",
        "pl.scan_delta",
        "pyarrow",
        "query(",
        "read_topic",
    ):
        assert reader in page


# Spark gives the Python process of a stream ten seconds to start, which are few on a machine that does much else.
@retry(
    retry=retry_if_exception_message(match=r"(?s).*(failed|Python worker) to connect back"),
    stop=stop_after_attempt(10),
    reraise=True,
)
def play(code, names):
    exec(code, names)


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=lambda number: EXAMPLES[number].split("\n")[0])
def test_an_example_does_what_it_says(names, number):
    play(compile(EXAMPLES[number], f"warehouse-reading.md, example {number}", "exec"), names)
    found = {name: names.pop(name) for name in ("counts", "offsets", "errors") if name in names}
    [(kind, value)] = found.items()
    topic_rows = {0: ROWS[0] + 2, 1: ROWS[1]}
    by_topic = any(word in EXAMPLES[number] for word in ('format("millrace")', "read_topic"))
    expected = {"counts": topic_rows if by_topic else ROWS, "offsets": list(range(10, 20)), "errors": ERRORS}
    assert value == expected[kind]


def run_example_of(page, bootstrap):
    """Runs the page's only example in Python."""
    [block] = [one for one in blocks(ROOT / "docs" / page) if one.language == "python"]
    exec(compile(block.text.replace("127.0.0.1:9092", bootstrap), str(block), "exec"), {})


def test_the_examples_of_loads_do_what_they_say(broker, spark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    times_ms = [int(datetime(2026, 11, day, tzinfo=UTC).timestamp() * 1000) for day in (1, 2, 5)]
    with Cluster(broker.bootstrap) as cluster:
        for name in ("events", "prices"):
            Admin(cluster).create_topic(name, 1)
            SyncProducer(cluster).send(name, 0, [NewRecord(b"value", timestamp_ms=time_ms) for time_ms in times_ms])
    run_example_of("warehouse.md", broker.bootstrap)
    load_topic(LoadOptions(topic="prices", table="./warehouse/prices", bootstrap=broker.bootstrap), spark=spark)
    run_example_of("warehouse-modes.md", broker.bootstrap)
    assert capsys.readouterr().out == "3 1 {0: 0}\n2\n2\n"  # two of the three days are in the span


@pytest.mark.parametrize("compression", Compression)
def test_every_reader_knows_every_codec(broker, spark, tmp_path, compression):
    topic, location = f"codec-{compression}", str(tmp_path / "t")
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1)
        SyncProducer(cluster).send(topic, 0, [NewRecord(b"%d" % number * 40) for number in range(100)])
    options = LoadOptions(topic=topic, table=location, bootstrap=broker.bootstrap, compression=compression)
    assert load_topic(options, spark=spark).rows == 100
    [file] = Table.load(location, OsFileSystem()).files()
    codec = "UNCOMPRESSED" if compression is Compression.NONE else compression.name
    assert pq.read_metadata(file).row_group(0).column(3).compression == codec
    delta = DeltaTable(location)
    by_delta = pa.table(QueryBuilder().register("t", delta).execute("SELECT value FROM t"))
    found = [
        sum(len(row["value"]) for row in spark.read.parquet(file).collect()),
        duckdb.sql(f"SELECT sum(octet_length(value)) FROM read_parquet('{file}')").fetchall()[0][0],
        pl.scan_delta(location).select(pl.col("value").bin.size().sum()).collect().item(),
        sum(map(len, delta.to_pyarrow_dataset().to_table().column("value").to_pylist())),
        sum(map(len, by_delta.column("value").to_pylist())),
    ]
    assert found == [(10 + 2 * 90) * 40] * 5


@pytest.mark.peers
@pytest.mark.skipif(not any(DELTA_JARS.glob("*.jar")), reason="`make peers` brings Delta's jars for Spark")
def test_spark_reads_the_table_with_delta_s_jars_and_keeps_its_digests(table, tmp_path):
    copied = str(shutil.copytree(table, tmp_path / "table"))
    before = digests_of(Table.load(copied, OsFileSystem()))
    assert len(before) == len(Table.load(copied, OsFileSystem()).file_names())
    jars = ",".join(map(str, DELTA_JARS.glob("*.jar")))
    result = subprocess.run(
        [sys.executable, "-c", READS_DELTA, jars, copied],
        capture_output=True, timeout=TIMEOUT_S, check=False, text=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java().resolve().parents[1])},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-4000:]
    assert json.loads(result.stdout.splitlines()[-1]) == [[0, ROWS[0]], [1, ROWS[1]]]
    for commit in Path(copied, "_delta_log").glob("*.json"):
        commit.unlink()
    assert digests_of(Table.load(copied, OsFileSystem())) == before


def run(*arguments):
    result = CommandRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_tables_and_their_lag(broker, table):
    [told] = json.loads(run("tables", os.path.dirname(table), "--bootstrap", broker.bootstrap, "--json").stdout)
    assert (told["topic"], told["rows"], told["dead_letters"], told["lag"]) == ("flights", 3498, 2, 0)
    assert (told["location"], told["version"] > 0, told["bytes"] > 0) == (table, True, True)
    shown = run("tables", os.path.dirname(table)).stdout
    assert re.search(r"flights +flights +3498 +2 ", shown)
    assert json.loads(run("tables", os.path.dirname(table), "--json").stdout)[0]["lag"] is None


def test_the_ledger_and_its_lag(broker, table):
    told = json.loads(run("ledger", table, "--bootstrap", broker.bootstrap, "--json").stdout)
    assert {partition: entry["next_offset"] for partition, entry in told["partitions"].items()} == {"0": 3000, "1": 500}
    assert told["lag"] == {"0": 0, "1": 0}


def test_sql_over_tables_and_dead_letters(table):
    joined = "SELECT f.partition, count(DISTINCT d.error) AS errors FROM flights f, flights__dead_letters d GROUP BY 1"
    lines = run("query", os.path.dirname(table), f"{joined} ORDER BY 1", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{"partition": 0, "errors": 2}, {"partition": 1, "errors": 2}]
    row = json.loads(run("query", table, "SELECT * FROM flights WHERE id = 9", "--json").stdout)
    assert (row["offset"], row["value"], row["headers"]) == (9, '{"id": 9}', [])
    late = json.loads(run("query", table, "SELECT TIMESTAMP '10000-01-01 00:00:00' AS at", "--json").stdout)
    assert late == {"at": "10000-01-01 00:00:00.000000"}
    assert "3498" in run("query", table, "SELECT count(*) AS n FROM flights").stdout


def test_sql_whose_columns_have_one_name_or_values_that_json_lacks(table):
    same = "SELECT a.id, b.id, 7 AS id_1 FROM flights a JOIN flights b USING (id) WHERE id = 9"
    [row] = map(json.loads, run("query", table, same, "--json").stdout.splitlines())
    assert row == {"id": 9, "id_2": 9, "id_1": 7}
    assert re.search(r"id +id_2 +id_1", run("query", table, same).stdout)
    odd = "SELECT 'nan'::DOUBLE AS a, ['inf'::FLOAT, 1.5] AS b"
    assert json.loads(run("query", table, odd, "--json").stdout, parse_constant=pytest.fail) == {
        "a": "NaN",
        "b": ["Infinity", 1.5],
    }


ODD = """SELECT id, 'a "b", é' AS text, NULL AS nothing, [1, 2] AS list, 'x'::BLOB AS bytes, 1.5 AS number,
    TIMESTAMP '2026-11-29 20:00:00' AS at FROM flights ORDER BY id"""


def test_a_whole_result_for_programs(table, tmp_path):
    file = str(tmp_path / "result")

    def written(form):
        assert run("query", table, ODD, "--format", form, "--output", file).exit_code == 0
        return file

    rows = pq.read_table(written("parquet"))
    assert rows.num_rows == sum(ROWS.values())
    with pa.OSFile(written("arrow")) as stream:
        assert pa.ipc.open_stream(stream).read_all().equals(rows)
    with open(written("csv"), newline="") as lines:
        [header, first, *others] = csv.reader(lines)
    assert header == rows.schema.names
    assert first == [str(rows["id"][0]), 'a "b", é', "", "[1, 2]", "x", "1.5", "2026-11-29T20:00:00"]
    assert [int(row[0]) for row in others] == rows["id"].to_pylist()[1:]
    with open(written("json")) as lines:
        assert [json.loads(line)["id"] for line in lines] == rows["id"].to_pylist()
    assert os.listdir(tmp_path) == ["result"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--columns", "id,ofset"], "the result has no column ofset; did you mean offset?"),
        (["--format", "csv", "--output", "/no/such/folder/x"], "/no/such/folder/x can't be written: No such file"),
    ],
)
def test_what_can_not_be_shown_is_said(table, options, words):
    failed = CommandRunner().invoke(app, ["query", table, "SELECT * FROM flights", *options])
    assert words in str(failed.exception)


@pytest.fixture
def at_a_terminal(monkeypatch):
    """Runs a query at a terminal of 80 columns and 24 lines; returns its lines, and whether a pager took them."""

    def command(*arguments, pager="cat"):
        master, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 80))
        env = {**os.environ, "PAGER": pager, "COLUMNS": "80", "LINES": "24"}
        given = [
            sys.executable,
            "-c",
            "from millrace_ops.cli.main import main; main()",
            "warehouse",
            "query",
            *arguments,
        ]
        with subprocess.Popen(given, stdin=-3, stdout=terminal, stderr=-1, env=env) as process:
            os.close(terminal)
            shown = b""
            with contextlib.suppress(OSError):  # the terminal is closed
                while part := os.read(master, 1 << 16):
                    shown += part
            assert process.wait(TIMEOUT_S) == 0, process.stderr.read()
        os.close(master)
        return shown.decode().splitlines()

    return command


def test_people_see_a_line_for_each_row_and_their_own_columns_first(table, at_a_terminal):
    lines = at_a_terminal(table, "SELECT * FROM flights ORDER BY id", "--no-pager")
    assert all(cell_len(line) <= 80 for line in lines)
    assert re.match(r"│ +id │ +offset │ key ", lines[1])
    assert len(lines) == 4 + 20 + 1 + 20 + 2
    assert lines[-1].startswith("  3,498 rows (40 shown), ")
    one = at_a_terminal(table, "SELECT * FROM flights WHERE id = 9 AND partition = 0", "--columns", "value,id")
    assert one[4] == '│ {"id": 9} │      9 │'


def test_people_see_all_rows_through_their_pager(table, at_a_terminal):
    lines = at_a_terminal(table, "SELECT id FROM flights ORDER BY id", "--all", pager="sed s/^/>/")
    assert len(lines) == 4 + sum(ROWS.values()) + 2
    assert all(line.startswith(">") for line in lines)


def test_people_see_a_row_from_top_to_bottom(table, at_a_terminal):
    lines = at_a_terminal(
        table, "SELECT id, repeat('x', 200) AS long FROM flights WHERE partition = 0 AND id = 9", "--vertical"
    )
    assert lines == ["-[ RECORD 1 ]-", "id   | 9", f"long | {'x' * 200}"]


def test_the_audit_beside_the_topic(broker, topic, table):
    assert audit(table, bootstrap=broker.bootstrap) == []
    assert run("audit", table, "--bootstrap", broker.bootstrap).exit_code == 0
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).delete_topic(topic)
        assert audit(table, bootstrap=broker.bootstrap) == ["topic flights does not exist"]
        Admin(cluster).create_topic(topic, 2)
    [finding] = audit(table, bootstrap=broker.bootstrap)
    assert finding.startswith("topic flights was deleted and created again: its id is ")
    broken = run("audit", table, "--bootstrap", broker.bootstrap)
    assert (broken.exit_code, broken.stdout.strip()) == (1, finding)
