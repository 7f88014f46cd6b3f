"""Archives of the classes that a JVM loads, with which later ones start in two thirds of the time (JEP 350).

    python -m millrace_support.class_archives kafka 3.9         part of `make peers`; `find_kafka` takes it
    python -m millrace_support.class_archives spark FILE        part of `make test`; tests/conftest.py hands it to JVMs
    python -m millrace_support.class_archives zookeeper FILE    the same

The JVM writes its archive when it ends. A Java that has no archive of its own writes none, and tests are only slower. A
JVM of another build, or with other jars, starts without the archive. Benchmarks start Kafka without it.

The archive of Spark is recorded in a driver that has the cluster, a server of Spark Connect and local executors in
itself, since all of these take it.
"""

import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kazoo.client import KazooClient

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.local_broker import LocalBroker
from millrace_benchmarks.kafka_broker import JAVA_FLAGS, KafkaBroker, find_kafka
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper

LOAD = """
import sys
from millrace_pipelines.spark.session import spark_session, local_master
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions

CONNECT = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": "0",
}

for number, (master, settings) in enumerate((("local-cluster[1,1,1024]", {}), (local_master(2), CONNECT))):
    with spark_session("classes", master, settings) as spark:
        table = f"{sys.argv[2]}-{number}"
        load_topic(LoadOptions(topic="classes", bootstrap=sys.argv[1], table=table), spark=spark)
        spark.read.parquet(table).groupBy("partition").count().orderBy("partition").collect()
"""


def archive_kafka(version: str) -> None:
    """Starts a broker, produces a record and stops it."""
    kafka = find_kafka(version)
    with TemporaryDirectory() as directory:
        unfinished = Path(directory, "classes.jsa")
        recorded = replace(kafka, java_flags=(*JAVA_FLAGS, _archive_at_exit(unfinished)))
        with (
            EmbeddedZooKeeper(Path(directory, "zoo")) if version.startswith("3.") else nullcontext() as zookeeper,
            KafkaBroker(
                recorded, Path(directory, "data"), zookeeper=zookeeper.address if zookeeper else None
            ) as broker,
            Cluster(broker.bootstrap) as cluster,
        ):
            Admin(cluster).create_topic("classes", 1)
            SyncProducer(cluster).send("classes", 0, [NewRecord(b"some")])
        _keep(unfinished, kafka.class_archive)


def archive_spark(archive: Path) -> None:
    """Loads a topic and reads its table."""
    with TemporaryDirectory() as directory, LocalBroker(str(Path(directory, "data"))) as broker:
        unfinished = Path(directory, "classes.jsa")
        broker.produce("classes", [b"some"])
        command = [sys.executable, "-c", LOAD, broker.bootstrap, str(Path(directory, "table"))]
        environment = os.environ | {"SPARK_SUBMIT_OPTS": _archive_at_exit(unfinished)}
        subprocess.run(command, env=environment, capture_output=True, check=True)  # the JVM holds the pipes to its end
        _keep(unfinished, archive)


def archive_zookeeper(archive: Path) -> None:
    """Starts a server, writes a node and stops it."""
    with TemporaryDirectory() as directory:
        unfinished = Path(directory, "classes.jsa")
        with EmbeddedZooKeeper(Path(directory, "data"), java_flags=(_archive_at_exit(unfinished),)) as server:
            client = KazooClient(server.address)
            client.start()
            client.create("/classes")
            client.stop()
            client.close()
        _keep(unfinished, archive)


def _archive_at_exit(archive: Path) -> str:
    return f"-XX:ArchiveClassesAtExit={archive}"


def _keep(unfinished: Path, archive: Path) -> None:
    if unfinished.exists():
        archive.unlink(missing_ok=True)
        archive.write_bytes(unfinished.read_bytes())
    else:
        sys.stderr.write(f"This Java writes no archive of its classes; tests do without {archive}.\n")


if __name__ == "__main__":
    what, which = sys.argv[1:]
    if what == "kafka":
        archive_kafka(which)
    elif what == "spark":
        archive_spark(Path(which))
    else:
        archive_zookeeper(Path(which))
