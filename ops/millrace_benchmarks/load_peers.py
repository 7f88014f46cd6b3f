"""The three ways from a topic to a table that `bench load --peer spark` compares, in one Spark session.

    Spark's Kafka source, from Apache Kafka      ─► Parquet by Spark's writer
    Spark's Kafka source, from Millrace          ─► Parquet by Spark's writer
    Millrace's load, from Millrace               ─► Parquet, synced, and one commit of rows and offsets

The JVM has the options of Spark's start scripts. With typed columns, Spark parses the values by `from_json` with the
schema that the load declares; values that can't be parsed become nulls in Spark, and dead letters in a load.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from millrace.errors import ClientError, SetupError
from millrace.java import java_home_for_spark
from millrace_benchmarks.load_topics import Topic
from millrace_pipelines.arrow import ENVELOPE_COLUMNS
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.payload.schema import read_payload_schema

JARS = Path(".peers", "spark-kafka", "libs")
FLIGHTS_SCHEMA = "defs/cluster/flights.json"


class Ways(NamedTuple):
    """Where the topics are, and where the tables go."""

    spark: SparkSession
    millrace: str
    kafka: str
    directory: Path


@contextmanager
def spark_with_kafka(cores: int) -> Iterator[SparkSession]:
    """Yields a session that has Spark's Kafka source; raises SetupError where its jars are missing."""
    jars = sorted(JARS.absolute().glob("*.jar"))
    if not jars:
        raise SetupError(
            f"Spark's Kafka source is not in {JARS.absolute()}: `make peers` brings it (needs Maven's mvn)"
        )
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with as_file(files("millrace_pipelines.spark") / "log4j2.properties") as logging:
        settings = {
            "spark.jars": ",".join(map(str, jars)),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        }
        builder = SparkSession.builder.master(f"local[{cores},3]").appName("bench load")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()


def spark_source(ways: Ways, bootstrap: str, topic: Topic, *, typed: bool = False) -> float:
    """Returns the records a second of Spark's Kafka source; raises ClientError where its rows are not the topic's."""
    out = ways.directory / "spark"
    started = time.perf_counter()
    rows = kafka_rows(ways.spark, bootstrap, topic.name)
    (with_json(rows) if typed else rows).write.parquet(str(out))
    seconds = time.perf_counter() - started
    written = ways.spark.read.parquet(str(out)).count()
    shutil.rmtree(out)
    return _rate(topic, written, seconds)


def millrace_load(ways: Ways, topic: Topic, *, typed: bool = False, numbers: Iterator[int] = count()) -> float:  # noqa: B008
    """Returns the records a second of Millrace's load and commit.

    Raises ClientError where its rows are not the topic's.
    """
    table = ways.directory / f"table-{next(numbers)}"
    with as_file(files("millrace_ops.demo") / FLIGHTS_SCHEMA) as schema:
        options = LoadOptions(
            topic=topic.name, table=str(table), bootstrap=ways.millrace, schema=str(schema) if typed else None
        )
        started = time.perf_counter()
        report = load_topic(options, spark=ways.spark)
        seconds = time.perf_counter() - started
    for made in ways.directory.glob(f"{table.name}*"):
        shutil.rmtree(made)
    return _rate(topic, report.rows, seconds)


def kafka_rows(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Returns the whole topic as the raw envelope, by Spark's Kafka source."""
    settings = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "includeHeaders": "true",
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
    }
    return spark.read.format("kafka").options(**settings).load().select(*ENVELOPE_COLUMNS)


def with_json(rows: DataFrame) -> DataFrame:
    """Returns the rows with their values' fields, as the flights' schema declares them."""
    with as_file(files("millrace_ops.demo") / FLIGHTS_SCHEMA) as path:
        schema = from_arrow_schema(read_payload_schema(str(path)).arrow)
    parsed: Column = f.from_json(f.col("value").cast("string"), schema)
    return rows.withColumn("payload", parsed).select(*ENVELOPE_COLUMNS, "payload.*")


def _rate(topic: Topic, rows: int, seconds: float) -> float:
    if rows != topic.records:
        raise ClientError(f"{topic.title}: {rows} rows came of {topic.records} records")
    return topic.records / seconds
