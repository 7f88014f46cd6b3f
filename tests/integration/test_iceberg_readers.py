"""Iceberg tables through their readers: PyIceberg, polars, DuckDB and Spark, each with the values of a Delta table.

Both tables are written as a task of a load writes them, of the same records, which have the limits of every type;
what the Delta table shows is compared with Python's values elsewhere (test_values_in_every_reader).
"""

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millrace.fs import OsFileSystem
from millrace.records.arrow import decode_to_arrow
from millrace.records.record import NewRecord, encode_batch
from millrace_pipelines.spark.read import ReadBlock
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.task import LoadSpec, load_range
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.tables.open import look_at_tables, made_dead_letters, make_tables
from millrace_support import iceberg_tables
from millrace_support.boundary_avro import avro
from millrace_support.boundary_json import mapped_json, nested_json, plain_json
from millrace_support.boundary_protobuf import protobuf
from millrace_support.iceberg_readers import asked_of_duckdb
from millrace_support.iceberg_tables import other_engine
from millrace_support.spark_iceberg import CATALOG, SparkIceberg

FS = OsFileSystem()
SEED = 20_261_130
FORMATS = {make.__name__: make for make in (plain_json, nested_json, mapped_json, avro, protobuf)}


def loaded(address, schema, records):
    """Writes a table and its letters as the task of a load does, of a log with these records."""
    log = b"".join(encode_batch(records[at : at + 1], base_offset=at) for at in range(len(records)))
    tables = make_tables(look_at_tables(address, "boundary", "id", schema, FS), FS)
    letters = tables.dead_letters or made_dead_letters(tables.rows, FS)
    spec = LoadSpec(
        load_id="load", topic="boundary", table=tables.rows.location, dead_letters_table=letters.location,
        payload=tables.payload, field_ids=tables.rows.field_ids, dead_letter_ids=letters.field_ids,
    )  # fmt: skip
    result = load_range(
        OffsetRange(0, 0, len(records)), spec, lambda *_: map(ReadBlock, decode_to_arrow(log)), task=0, fs=FS
    )
    for table, files in ((letters, result.dead_letter_files), (tables.rows, result.files)):
        expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, len(records))})
        table.commit(files, expected=expected, transactions=transactions, lineage={"kind": "load", "ranges": []})


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """The folder of the embedded catalog, beside which the same tables are kept by Delta."""
    folder = tmp_path_factory.mktemp("lake")
    for name, make in FORMATS.items():
        boundary = make(SEED)
        schema = parse_payload_schema(json.dumps(boundary.schema))
        records = [NewRecord(sample.value, timestamp_ms=0) for sample in boundary.samples]
        for address in (f"iceberg:{folder}/b.{name}", str(folder / "delta" / name)):
            loaded(address, schema, records)
    return folder


NAMES = [one for name in FORMATS for one in (name, dead_letters_dir(name))]


def plain(value, data_type):
    """Returns a value of Python by its column's type: floats by their bits, maps as sorted pairs."""
    if value is None or pa.types.is_nested(data_type):
        return None if value is None else parts(value, data_type)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, float):
        return value.hex()
    return (str(value),) if isinstance(value, Decimal) else value


def parts(value, data_type):
    if pa.types.is_struct(data_type):
        return {field.name: plain(value[field.name], field.type) for field in data_type}
    if pa.types.is_list(data_type):
        return [plain(one, data_type.value_type) for one in value]
    pairs = value.items() if isinstance(value, dict) else value
    pairs = [(one["key"], one["value"]) if isinstance(one, dict) else one for one in pairs]
    return sorted((plain(key, data_type.key_type), plain(one, data_type.item_type)) for key, one in pairs)


def values(found, schema):
    """Returns a table's rows as `plain` makes them, in the order of their offsets."""
    ordered = found.take(pc.sort_indices(found, sort_keys=[("offset", "ascending")]))
    columns = {field.name: ordered.column(field.name).to_pylist() for field in schema}
    return {field.name: [plain(one, field.type) for one in columns[field.name]] for field in schema}


def expected(lake, name):
    table = load_table(str(lake / "delta" / name), FS)
    return values(table.dataset().to_table(), table.schema), table.schema


def test_the_formats_of_one_load_have_the_same_rows(lake):
    for name in NAMES:
        wanted, schema = expected(lake, name)
        found = load_table(f"iceberg:{lake}/b.{name}", FS)
        assert found.schema.equals(schema)
        assert values(found.dataset().to_table(), schema) == wanted
    assert Counter(len(wanted["offset"]) > 0 for wanted, _ in (expected(lake, name) for name in NAMES))[True] > 5


@pytest.mark.parametrize("name", NAMES)
def test_pyiceberg_reads_every_value(lake, name):
    wanted, schema = expected(lake, name)
    assert values(other_engine(f"iceberg:{lake}/b.{name}").scan().to_arrow(), schema) == wanted


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_polars_reads_every_value(lake, name):
    wanted, schema = expected(lake, name)
    frame = pl.scan_iceberg(other_engine(f"iceberg:{lake}/b.{name}")).collect()
    assert values(frame.to_arrow(), schema) == wanted


def test_duckdb_reads_every_value(lake, tmp_path):
    newest = {name: other_engine(f"iceberg:{lake}/b.{name}").metadata_location for name in NAMES}
    asked = [
        (f"SELECT * FROM iceberg_scan('{place.removeprefix('file://')}')", str(tmp_path / name))
        for name, place in newest.items()
    ]
    for name, found in zip(NAMES, asked_of_duckdb(asked), strict=True):
        wanted, schema = expected(lake, name)
        assert values(found, schema) == wanted


def test_spark_reads_every_value(lake, tmp_path):
    with SparkIceberg(lake, tmp_path) as spark:
        found = {name: spark.arrow(f"SELECT * FROM {CATALOG}.b.{name}", tmp_path / name) for name in NAMES}
    for name in NAMES:
        wanted, schema = expected(lake, name)
        assert values(found[name], schema) == wanted


def test_readers_leave_out_files_by_partitions_and_bounds(tmp_path):
    address = f"iceberg:{tmp_path}/b.events"
    iceberg_tables.made(address)
    for until in (10, 20, 30):
        iceberg_tables.load_range(address, until)
    scan = other_engine(address).scan(row_filter="offset >= 20")
    assert [Path(task.file.file_path).suffix for task in scan.plan_files()] == [".parquet"]
    assert scan.to_arrow().num_rows == 10
