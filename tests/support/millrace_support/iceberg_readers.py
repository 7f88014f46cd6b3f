"""What readers of Iceberg show of a table that is found in an embedded catalog."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.formats import load_table
from millrace_support.iceberg_tables import other_engine
from millrace_support.spark_iceberg import CATALOG, PEERS, SparkIceberg

READS_ICEBERG = """
import glob, json, sys
sys.path.insert(0, sys.argv[1])
import duckdb
import pyarrow as pa

connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "iceberg"):
    [path] = glob.glob(f"{sys.argv[1]}/duckdb_extension_{name}/**/*.duckdb_extension", recursive=True)
    connection.execute(f"LOAD '{path}'")
connection.execute("SET TimeZone = 'UTC'")
for statement, path in json.loads(sys.argv[2]):
    rows = connection.execute(statement).fetch_arrow_table()
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
"""
TIMEOUT_S = 120


def asked_of_duckdb(asked: Sequence[tuple[str, str]]) -> list[pa.Table]:
    """Returns what DuckDB 1.5 answers to statements, each of which comes with a path for its answer."""
    if not (PEERS / "duckdb").is_dir():
        pytest.skip("`make iceberg` brings DuckDB with its extension for Iceberg")
    command = [sys.executable, "-c", READS_ICEBERG, str(PEERS / "duckdb"), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    found = []
    for _, path in asked:
        with pa.OSFile(path, "rb") as source:
            found.append(pa.ipc.open_file(source).read_all())
    return found


def readers(address: str, spark: SparkIceberg, folder: Path) -> Mapping[str, Callable[[], pa.Table]]:
    """Returns what reads a table whole: four readers by name, and Millrace. `folder` is for what they write."""
    name = address.rpartition("/")[2]
    place = other_engine(address).metadata_location.removeprefix("file://")
    of_duckdb = f"SELECT * FROM iceberg_scan('{place}')"  # noqa: S608  # no other names
    of_spark = f"SELECT * FROM {CATALOG}.{name}"  # noqa: S608
    return {
        "millrace": lambda: load_table(address, OsFileSystem()).dataset().to_table(),
        "pyiceberg": lambda: other_engine(address).scan().to_arrow(),
        "polars": lambda: pl.scan_iceberg(other_engine(address)).collect().to_arrow(),
        "duckdb": lambda: asked_of_duckdb([(of_duckdb, str(folder / "duckdb.arrow"))])[0],
        "spark": lambda: spark.arrow(of_spark, folder / "spark.arrow"),
    }
