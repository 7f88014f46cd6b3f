"""Counts the table's rows by carrier with Spark SQL: `python -m millrace_ops.demo.count QUESTION` prints a JSON object.

    {"table": "s3://lake/tables/flights", "master": "spark://spark-1:7077", "settings": {"spark.executor.memory": "1g"}}

It is a separate process, so that Spark's JVM ends with it and writes nothing to the demo's terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

from millrace.errors import PlatformError
from millrace_ops.supervisor.supervised import ChildProcess
from millrace_pipelines.spark.session import spark_session
from millrace_pipelines.warehouse.tables.spark_table import spark_table

QUERY = "SELECT carrier, count(*) AS flights FROM flights GROUP BY carrier ORDER BY flights DESC"
TIMEOUT_S = 180.0


def count_by_carrier(table: str, log_dir: str, master: str, settings: Mapping[str, str]) -> dict[str, int]:
    """Counts a table's rows by carrier with Spark in another process; raises PlatformError where that fails."""
    question = json.dumps({"table": table, "master": master, "settings": dict(settings)})
    command = (sys.executable, "-m", "millrace_ops.demo.count", question)
    child = ChildProcess("count", command, {}, os.path.join(log_dir, "count.log"))
    child.finish(TIMEOUT_S)
    if child.exit_status() != 0:
        raise PlatformError(f"Spark could not count; the end of {child.log_path}:\n{child.log_tail()}")
    counts: dict[str, int] = json.loads(next(line for line in child.read_log().splitlines() if line.startswith("{")))
    return counts


def main() -> None:
    """Counts the rows of the table that the command line names, and prints the counts."""
    asked = json.loads(sys.argv[1])
    with spark_session("millrace demo", asked["master"], asked["settings"]) as spark:
        spark_table(spark, asked["table"]).createOrReplaceTempView("flights")
        counts = {row.carrier: row.flights for row in spark.sql(QUERY).collect()}
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
