"""Reading a table as a Spark DataFrame, from the list of its files, which needs no Delta jar.

In a bucket Spark reads by Hadoop's client of S3, which is a jar of its own (hadoop-aws) and is not part of PySpark:

    s3://bucket/table      the table, as all of Millrace names it
    s3a://bucket/table     the same for Spark; endpoint and region are those of the environment, as for the loads, where
                           the session has no settings of its own (spark.hadoop.fs.s3a.…)

Keys are never an option, since Spark shows options: driver and executors take them from their environment. HDFS is read
by what PySpark has; settings of Hadoop that are given as the store's options are Spark's, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from millrace.errors import SetupError
from millrace.fs import FileSystem
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.stores.addresses import spark_address, store_at
from millrace_pipelines.warehouse.stores.options import store_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

S3A_CLIENT = "org.apache.hadoop.fs.s3a.S3AFileSystem"
ENDPOINT = "fs.s3a.endpoint"


def spark_table(spark: SparkSession, location: str, fs: FileSystem = DISK) -> DataFrame:
    """Returns the rows of the table's newest version.

    Raises TableNotFoundError where there is none, SetupError where the table is in a bucket and Spark lacks hadoop-aws.
    """
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  importing a name of the warehouse loads none

    table = load_table(location, fs)
    schema = from_arrow_schema(table.schema)
    paths = table.files()
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema)
    if store_at(table.location, fs).is_local:
        rows = reader.option("basePath", table.location).parquet(*paths)
    else:
        addresses = [spark_address(table.location, path) for path in paths]
        rows = _from_store(spark, reader, table.location, addresses)
    deleted = [
        (os.path.basename(name), int(row)) for name, kept in table.kept_rows().items() for row in np.flatnonzero(~kept)
    ]
    if deleted:
        gone = spark.createDataFrame(deleted, "file_name string, row_index long")
        rows = rows.select("*", "_metadata.file_name", "_metadata.row_index")
        rows = rows.join(gone, ["file_name", "row_index"], "left_anti")
    return rows.select(*schema.fieldNames())


def s3a_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of Hadoop's client of S3 that stand for endpoint and region in the environment."""
    options: dict[str, str] = {}
    if endpoint := environment.get("AWS_ENDPOINT_URL"):
        options = {ENDPOINT: endpoint, "fs.s3a.path.style.access": "true"}
    if region := environment.get("AWS_REGION"):
        options["fs.s3a.endpoint.region"] = region
    return options


def hadoop_options(location: str) -> dict[str, str]:
    """Returns the options by which Spark's own client reaches the store of a table; none of them is a key."""
    if location.startswith("hdfs:"):
        return dict(store_options().of(location))
    return s3a_options(os.environ)


def _from_store(spark: SparkSession, reader: DataFrameReader, location: str, paths: list[str]) -> DataFrame:
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    own = hadoop_options(location).items()
    options = {name: value for name, value in own if spark.conf.get(f"spark.hadoop.{name}", None) is None}
    try:
        return reader.options(**options).parquet(*paths)
    except (PySparkException, Py4JError) as error:
        if S3A_CLIENT not in str(error):
            raise
        package = f"org.apache.hadoop:hadoop-aws:{_hadoop_version(spark)}"
        raise SetupError(
            f"Spark lacks its client of S3: start the session with spark.jars.packages={package}"
        ) from error


def _hadoop_version(spark: SparkSession) -> str:
    """Returns the version of Spark's Hadoop, of which the client has to be; over Spark Connect it is not told."""
    from millrace_pipelines.spark.session import is_remote  # noqa: PLC0415

    if is_remote(spark):
        return "(the version of the server's Hadoop)"
    jvm = cast("Any", spark._jvm)  # noqa: SLF001
    return str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
