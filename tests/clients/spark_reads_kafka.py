"""A program of its own, since a JVM takes Spark's Kafka source in at its start only.

`spark_reads_kafka.py JARS BOOTSTRAP TOPIC DIR`: a topic of 1,000 records is written by Spark's sink, read in a batch by
offsets and by time, and as a stream up to its end, twice; what was found is one line of JSON.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

RECORDS = 1000
jars, bootstrap, topic, directory = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", ",".join(str(jar) for jar in Path(jars).glob("*.jar")))
    .config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.sql.codegen.wholeStage", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
found = {}


def write(first, count):
    rows = spark.range(first, first + count).select(
        f.concat(f.lit("key-"), "id").alias("key"),
        f.concat(f.lit("value-"), "id").alias("value"),
        f.lit(topic).alias("topic"),
        (f.col("id") % 2).cast("int").alias("partition"),
    )
    settings = {"kafka.bootstrap.servers": bootstrap, "kafka.enable.idempotence": "false"}
    rows.write.format("kafka").options(**settings).save()


def batch(**options):
    return spark.read.format("kafka").options(**source, **options).load()


def stream():
    """Returns what one run finds up to the current end, by its own checkpoint."""
    rows = spark.readStream.format("kafka").options(**source, startingOffsets="earliest", maxOffsetsPerTrigger="600")
    out = f"{directory}/rows"
    query = (
        rows.load()
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(out)
    )
    query.awaitTermination()
    rows = spark.read.parquet(out)
    return [rows.count(), rows.select("value").distinct().count()]


write(0, RECORDS)
everything = batch(startingOffsets="earliest", endingOffsets="latest")
found["schema"] = everything.columns
found["batch"] = [row.value for row in everything.selectExpr("CAST(value AS STRING) AS value").collect()]
part = {
    "startingOffsets": json.dumps({topic: {"0": 10, "1": -2}}),
    "endingOffsets": json.dumps({topic: {"0": 20, "1": 5}}),
}
found["range"] = [list(row) for row in batch(**part).groupBy("partition").count().orderBy("partition").collect()]
found["by time"] = batch(startingTimestamp="0").count()
found["streams"] = [stream()]
write(RECORDS, RECORDS)
found["streams"].append(stream())
spark.stop()
sys.stdout.write(json.dumps(found))
