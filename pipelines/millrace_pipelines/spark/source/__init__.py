"""Topics as a Spark data source, for batches and for streams.

spark.dataSource.register(MillraceDataSource)
spark.read.format("millrace").option("bootstrap", "127.0.0.1:9092").option("topic", "events").load()

The source is in Python's Data Source API, as Spark 4.2 has it. Its schema is the raw envelope: topic, partition,
offset, timestamp, key, value, headers. The user's schema may leave columns out, which are then not handed to Spark; the
interface has no other way to choose columns.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.spark.errors import SourceOptionError
from millrace_pipelines.spark.source.options import ONLY_BATCH, ONLY_STREAM, parse_options, refuse
from millrace_pipelines.spark.source.readers import BatchReader, PushingBatchReader, StreamReader

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class MillraceDataSource(DataSource):
    """Spark's data source for `spark.read.format("millrace")` and `spark.readStream`; options.py lists its options."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format, `millrace`."""
        return "millrace"

    def schema(self) -> StructType:
        """Returns the columns of the envelope; checks the options already here, so that `load` refuses wrong ones."""
        parse_options(self.options)
        return from_arrow_schema(ENVELOPE_SCHEMA)

    def reader(self, schema: StructType) -> BatchReader:
        """Returns the reader of a batch query.

        It accepts filters only where Spark pushes them down (`spark.sql.python.filterPushdown.enabled`, off by
        default), since otherwise Spark refuses a reader that has `pushFilters`.
        """
        refuse(self.options, ONLY_STREAM, "batch")
        kind = PushingBatchReader if PUSHDOWN_WORKER in sys.modules else BatchReader
        return kind(parse_options(self.options), columns_of(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  # Spark's name
        """Returns the reader of a streaming query."""
        refuse(self.options, ONLY_BATCH, "stream")
        return StreamReader(parse_options(self.options), columns_of(schema))


def columns_of(schema: StructType) -> pa.Schema:
    """Returns the columns of the envelope that a schema names, in the schema's order.

    Raises SourceOptionError for any other column.
    """
    columns = to_arrow_schema(schema, timezone="UTC")
    for column in columns:
        index = ENVELOPE_SCHEMA.get_field_index(column.name)
        if index < 0 or not column.equals(ENVELOPE_SCHEMA.field(index)):
            known = ", ".join(f"{field.name} {field.type}" for field in ENVELOPE_SCHEMA)
            raise SourceOptionError(f"schema: {column.name} {column.type} is no column of a topic; there are {known}")
    return columns
