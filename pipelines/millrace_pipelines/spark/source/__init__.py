"""Topics as a Spark data source, for batches and for streams.

spark.dataSource.register(MillraceDataSource)
spark.read.format("millrace").option("bootstrap", "127.0.0.1:9092").option("topic", "events").load()
"""

from millrace_pipelines.spark.source.source import MillraceDataSource

__all__ = ["MillraceDataSource"]
