"""A warehouse table as a Spark DataFrame, by its file list: no Delta jar is needed."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.table import Table


def spark_table(spark: SparkSession, table_dir: str) -> DataFrame:
    """The rows of the table's newest version; TableNotFoundError where there is none."""
    table = Table.load(table_dir, OsFileSystem())
    schema = from_arrow_schema(table.schema)
    paths = table.files()
    return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
