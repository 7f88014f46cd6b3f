"""Values at the limits of every type, by every decoder in real tables: all readers show the same, or it is a letter.

The tables are written as a task of a load writes them, and read by Spark with Delta's jars, DuckDB, polars, pyarrow and
delta-rs; each reader's values must also be Python's, for that is what most programs take them as.
"""

import json
import math
import os
import struct
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from millrace.fs import OsFileSystem
from millrace.java import find_java
from millrace.records.arrow import decode_to_arrow
from millrace.records.record import NewRecord, encode_batch
from millrace.times import MAX_DATETIME_MS, MIN_DATETIME_MS
from millrace_pipelines.arrow import ENVELOPE_COLUMNS
from millrace_pipelines.spark.read import ReadBlock
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.task import LoadSpec, load_range
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.tables.open import made_dead_letters
from millrace_support.boundary_avro import avro
from millrace_support.boundary_json import mapped_json, nested_json, plain_json
from millrace_support.boundary_protobuf import empty_row, protobuf
from millrace_support.boundary_values import LETTER, octets, texts
from millrace_support.small_tables import open_tables

FS = OsFileSystem()
SEED = 20_261_128
FORMATS = {
    "plain_json": plain_json,
    "nested_json": nested_json,
    "mapped_json": mapped_json,
    "avro": avro,
    "protobuf": protobuf,
}
TABLES = [*FORMATS, "raw"]
DELTA_JARS = Path(__file__).parents[2] / ".peers" / "spark-delta" / "libs"
TIMEOUT_S = 300
COLLECTED = ["plain_json", "raw"]
SPARK_READS = [*TABLES, "mapped_json_letters", "raw_letters"]
# A program of its own, since a JVM takes jars in at its start only. `collect` makes values of Python by the machine's
# zone and its clock changes, and has none for the first day of the calendar: the rows with these are left out.
READS_DELTA = """
import json
import sys
import pyarrow as pa
from pyspark.sql import SparkSession

settings = {
    "spark.jars": sys.argv[1],
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
for location, first_day in json.loads(sys.argv[2]).items():
    rows = spark.read.format("delta").load(location)
    table = rows.toArrow()
    if first_day is not None:
        collected = rows.where(~rows["offset"].isin(first_day)).collect()
        assert len(collected) == table.num_rows - len(first_day)
    with pa.OSFile(location + ".arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
"""


def loaded(location, schema, records):
    """Writes a table and its letters as the task of a load does, of a log with these records; returns the location."""
    log = b"".join(encode_batch(records[at : at + 1], base_offset=at) for at in range(len(records)))
    tables = open_tables(location, "boundary", "id", schema, FS)
    spec = LoadSpec(
        load_id="load", topic="boundary", table=location, dead_letters_table=dead_letters_dir(location),
        payload=tables.payload,
    )  # fmt: skip
    result = load_range(
        OffsetRange(0, 0, len(records)), spec, lambda *_: map(ReadBlock, decode_to_arrow(log)), task=0, fs=FS
    )
    assert result.rows + result.dead_letters == len(records)
    letters = tables.dead_letters or made_dead_letters(tables.rows, FS)
    for table, files in ((letters, result.dead_letter_files), (tables.rows, result.files)):
        expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, len(records))})
        table.commit(files, expected=expected, transactions=transactions, lineage={"kind": "load", "ranges": []})
    return location


@pytest.fixture(scope="module")
def formats():
    return {name: make(SEED) for name, make in FORMATS.items()}


def raw_records():
    """Records of the raw envelope; of those that are letters the time is not of the calendar."""
    times = (MIN_DATETIME_MS, MIN_DATETIME_MS + 1, -2, 0, 1_700_000_000_000, MAX_DATETIME_MS)
    beyond = (MIN_DATETIME_MS - 1, MAX_DATETIME_MS + 1, 1_700_000_000_000_000, 2**63 - 1, -(2**63))
    found = [NewRecord(b"v", timestamp_ms=time_ms) for time_ms in (*times, -1, *beyond)]
    for case in octets(SEED):
        found += [NewRecord(case.written, timestamp_ms=0), NewRecord(None, case.written, timestamp_ms=0)]
    headers = [(case.written, b"\0\xff") for case in texts(SEED)]
    found += [NewRecord(b"v", timestamp_ms=0, headers=(one, (one[0], None))) for one in headers]
    return [*found, NewRecord(b"v", timestamp_ms=0, headers=tuple(headers))]


@pytest.fixture(scope="module")
def tables(formats, tmp_path_factory):
    """The locations of all tables, and of their letters."""
    folder = tmp_path_factory.mktemp("boundary")
    found = {}
    for name, one in formats.items():
        records = [NewRecord(sample.value, timestamp_ms=0) for sample in one.samples]
        found[name] = loaded(str(folder / name), parse_payload_schema(json.dumps(one.schema)), records)
    found["raw"] = loaded(str(folder / "raw"), None, raw_records())
    return found | {f"{name}_letters": dead_letters_dir(location) for name, location in found.items()}


def on_the_first_day(location):
    """Returns the offsets of the rows that have a time of the first day of the calendar."""
    return [row["offset"] for row in read_by_pyarrow(location) if "datetime.datetime(1, 1, 1, " in repr(row)]


@pytest.fixture(scope="module")
def spark_tables(tables):
    """Returns the folder in which Spark has written what it read of each table."""
    if not any(DELTA_JARS.glob("*.jar")):
        pytest.skip("`make peers` brings Delta's jars for Spark")
    jars = ",".join(map(str, DELTA_JARS.glob("*.jar")))
    first_days = {tables[name]: on_the_first_day(tables[name]) if name in COLLECTED else None for name in SPARK_READS}
    environment = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java().resolve().parents[1]), "TZ": "UTC"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    result = subprocess.run(
        [sys.executable, "-c", READS_DELTA, jars, json.dumps(first_days)],
        capture_output=True, timeout=TIMEOUT_S, check=False, text=True, env=os.environ | environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-4000:]
    return {name: f"{tables[name]}.arrow" for name in SPARK_READS}


def canonical(value, data_type):
    """Returns a value by its bits, so that no two that differ are equal; maps as pairs, whoever shows them."""
    if value is None or pa.types.is_nested(data_type):
        return None if value is None else parts(value, data_type)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, datetime):
        return value.isoformat()
    kind = (str, bytes, bool, int, Decimal, date)
    assert isinstance(value, kind), type(value)
    return type(value), str(value) if isinstance(value, Decimal) else value


def parts(value, data_type):
    if pa.types.is_list(data_type):
        return [canonical(one, data_type.value_type) for one in value]
    if pa.types.is_struct(data_type):
        return {field.name: canonical(value[field.name], field.type) for field in data_type}
    pairs = value.items() if isinstance(value, dict) else value
    return [(canonical(key, data_type.key_type), canonical(one, data_type.item_type)) for key, one in pairs]


def by_offset(rows, schema):
    """Returns Python's values of each row by their bits, under the row's offset."""
    found = {}
    for row in rows:
        assert row.keys() == set(schema.names)
        found[row["offset"]] = {field.name: canonical(row[field.name], field.type) for field in schema}
    assert len(found) == len(rows)
    return found


def read_by_pyarrow(location):
    return pq.ParquetDataset(Table.load(location, FS).files()).read().to_pylist()


def read_by_delta_rs(location):
    found = QueryBuilder().register("t", DeltaTable(location)).execute("SELECT * FROM t")
    return pa.table(found).to_pylist()


def read_by_dataset(location):
    return DeltaTable(location).to_pyarrow_dataset().to_table().to_pylist()


def read_by_polars(location):
    return pl.read_delta(location).to_dicts()


def read_by_duckdb(location):
    files = Table.load(location, FS).files()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.read_parquet(files).to_arrow_table().to_pylist()


READERS = {
    "pyarrow": read_by_pyarrow, "dataset": read_by_dataset, "delta-rs": read_by_delta_rs,
    "polars": read_by_polars, "duckdb": read_by_duckdb,
}  # fmt: skip


def schema_of(location):
    return Table.load(location, FS).schema


@pytest.mark.parametrize("name", FORMATS)
def test_each_value_is_a_row_with_it_or_a_letter_with_its_bytes(tables, formats, name):
    schema, samples = schema_of(tables[name]), formats[name].samples
    rows = by_offset(read_by_pyarrow(tables[name]), schema)
    letters = {row["offset"]: row for row in read_by_pyarrow(tables[f"{name}_letters"])}
    columns = [column for column in schema.names if column not in ENVELOPE_COLUMNS]
    empty = empty_row(columns) if name == "protobuf" else dict.fromkeys(columns)
    for offset, sample in enumerate(samples):
        if sample.expected is LETTER:
            assert letters[offset]["value"] == sample.value, sample
            continue
        assert offset in rows, (sample, letters[offset]["error"])
        nothing = dict.fromkeys(columns) if sample.value is None else empty
        wanted = nothing | {sample.column: sample.expected}
        shown = {column: canonical(wanted[column], schema.field(column).type) for column in columns}
        assert {column: rows[offset][column] for column in columns} == shown, sample
    assert len(rows) + len(letters) == len(samples)
    assert len(rows) > 200


def test_the_raw_envelope_has_each_record_or_a_letter(tables):
    records = raw_records()
    rows = {row["offset"]: row for row in read_by_pyarrow(tables["raw"])}
    letters = {row["offset"]: row for row in read_by_pyarrow(tables["raw_letters"])}
    assert len(letters) == 5
    for offset, record in enumerate(records):
        row = rows.get(offset) or letters[offset]
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert [(header["key"], header["value"]) for header in row["headers"]] == list(record.headers)
        if offset in letters:
            assert (row["timestamp"], row["timestamp_ms"]) == (None, record.timestamp_ms)
        else:
            time = row["timestamp"]
            assert (-1 if time is None else round(time.timestamp() * 1000)) == record.timestamp_ms


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", [*TABLES, *(f"{name}_letters" for name in TABLES)])
def test_a_reader_shows_what_was_written(tables, name, reader):
    schema = schema_of(tables[name])
    assert by_offset(READERS[reader](tables[name]), schema) == by_offset(read_by_pyarrow(tables[name]), schema)


@pytest.mark.peers
@pytest.mark.parametrize("name", SPARK_READS)
def test_spark_shows_what_was_written(tables, spark_tables, name):
    schema = schema_of(tables[name])
    with pa.memory_map(spark_tables[name]) as source:
        found = pa.ipc.open_file(source).read_all().to_pylist()
    assert by_offset(found, schema) == by_offset(read_by_pyarrow(tables[name]), schema)


@pytest.mark.parametrize("name", TABLES)
def test_duckdb_gives_python_its_values(tables, name):
    """They are Python's own here, not Arrow's: its own calendar, and pairs of a map as a dictionary."""
    files = Table.load(tables[name], FS).files()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        assert len(connection.read_parquet(files).fetchall()) == len(read_by_pyarrow(tables[name]))
