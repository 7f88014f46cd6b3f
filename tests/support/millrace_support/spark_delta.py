"""Spark with the jars of a table format, in a process of its own: a JVM takes jars in at its start only.

    with SparkDelta(JARS) as spark:
        spark.sql(f"DELETE FROM delta.`{table}` WHERE offset = 1")
        rows = spark.sql(f"SELECT offset FROM delta.`{table}`")

It is the judge of tables, and the other engine that changes them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from millrace.java import find_java

STOP_TIMEOUT_S = 60.0
READY = "ready"
PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the JVM prints is no answer
settings = json.loads(sys.argv[1]) | {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.warehouse.dir": sys.argv[2],
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
print("ready", file=answers, flush=True)
for line in sys.stdin:
    try:
        kind, text, columns = json.loads(line)
        if kind == "arrow":
            import pyarrow as pa
            rows = spark.sql(text).toArrow()
            with pa.OSFile(columns[0], "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
            answer = []
        elif kind == "sql":
            answer = [list(row) for row in spark.sql(text).collect()]
        else:
            from millrace_pipelines.warehouse import spark_table
            answer = [list(row) for row in spark_table(spark, text).select(*columns).collect()]
        print(json.dumps({"rows": answer}, default=str), file=answers, flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
"""


class SparkDeltaError(Exception):
    """Spark refused a statement."""


DELTA = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


class SparkSql:
    """A session of Spark, in a process of its own, that runs statements of SQL.

    Args:
        jars: The folder of the jars of a table format.
        directory: Where the process works and logs.
        settings: Settings of Spark.
        environment: Variables of the process.
    """

    def __init__(
        self, jars: Path, directory: Path, settings: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = (directory / "spark-sql.log").open("wb")
        given = {"spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))), **settings}
        command = [sys.executable, "-c", PROGRAM, json.dumps(given), str(directory / "wh")]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=directory,
            env=os.environ
            | {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java().resolve().parents[1])}
            | dict(environment or {}),
        )
        assert self._read() == READY

    def sql(self, statement: str) -> list[list[Any]]:
        """Runs a statement and returns its rows; raises SparkDeltaError where Spark refuses it."""
        return self._answer("sql", statement, [])

    def arrow(self, statement: str, path: Path) -> pa.Table:
        """Runs a statement and returns its rows as Arrow has them, by way of a file."""
        self._answer("arrow", statement, [str(path)])
        with pa.OSFile(str(path), "rb") as source:
            return pa.ipc.open_file(source).read_all()

    def table(self, location: str, columns: Sequence[str]) -> list[list[Any]]:
        """Returns some columns of what Millrace's `spark_table` reads; raises SparkDeltaError where that refuses."""
        return self._answer("table", location, columns)

    def _answer(self, kind: str, text: str, columns: Sequence[str]) -> list[list[Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([kind, text, columns]).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._read())
        if "error" in answer:
            raise SparkDeltaError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"Spark ended: {Path(self._log.name).read_text(errors='replace')[-4000:]}"
        return str(line.decode()).strip()

    def close(self) -> None:
        """Ends the process, which the end of its input ends, too, so that it never outlives this one."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(STOP_TIMEOUT_S)
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SparkDelta(SparkSql):
    """A session of Spark with Delta Lake that runs statements of SQL.

    Args:
        jars: The folder of Delta's jars.
        directory: Where the process works and logs.
    """

    def __init__(self, jars: Path, directory: Path) -> None:
        super().__init__(jars, directory, DELTA)
