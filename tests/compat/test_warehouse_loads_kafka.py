"""The same load from a real Apache Kafka: transactions, group offsets, and Spark's own connector as the reader."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from itertools import count as counting
from itertools import islice
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.fs import OsFileSystem
from millrace_benchmarks.kafka_broker import KafkaBroker, await_markers, find_kafka
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_support.warm_jvm import without_warm_jvm

pytestmark = pytest.mark.peers
JARS = Path(".peers/spark-kafka/libs")
PARTITIONS = (0, 1)


@pytest.fixture(scope="module")
def spark():
    with ExitStack() as stack:
        with without_warm_jvm():
            session = stack.enter_context(spark_session("tests", local_master(2)))
        yield session


@pytest.fixture(scope="module", params=["3.9", "4.1"])
def kafka(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("kafka")
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    zookeeper = request.getfixturevalue("zookeeper").address + "/loads" if request.param == "3.9" else None
    kafka = find_kafka(request.param)
    with KafkaBroker(kafka, directory / "data", zookeeper=zookeeper, properties=settings) as broker:
        yield broker


def make_topic(kafka, name, **config):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1, config=config)])[name].result(60)


def transaction(kafka, name, topic, records, how):
    """Write (partition, value) pairs in a transaction; returns the producer, whose transaction may still be open."""
    settings = {"transactional.id": name, "transaction.timeout.ms": 900_000, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **settings})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition, value in records:
        producer.produce(topic, value, partition=partition, headers=[("how", how)])
    assert producer.flush(60) == 0
    if how == "commit":
        producer.commit_transaction(60)
    elif how == "abort":
        producer.abort_transaction(60)
    if how != "leave open":
        await_markers(kafka.bootstrap, topic, PARTITIONS)
    return producer


def plain(kafka, topic, records):
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for partition, value in records:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def consumed(kafka, topic, isolation):
    """(partition, offset, value) of all that librdkafka's consumer reads, in order."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "judge", "isolation.level": isolation}
    consumer = Consumer(settings | {"enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in PARTITIONS])
    found, ended = [], 0
    while ended < 2:
        message = consumer.poll(60)
        if message.error() is None:
            found.append((message.partition(), message.offset(), message.value()))
        else:
            ended += 1
    consumer.close()
    return sorted(found)


def loaded(table):
    columns = ["partition", "offset", "value"]
    files = Table.load(table, OsFileSystem()).files()
    rows = ds.dataset(files).to_table(columns=columns).to_pylist() if files else []
    return sorted(tuple(row[column] for column in columns) for row in rows)


def test_committed_reads_leave_out_what_was_aborted_or_is_open(spark, kafka, tmp_path):
    make_topic(kafka, "transactions")
    numbers = counting()

    def some(count):
        return [(number % 2, b"v%d" % number) for number in islice(numbers, count)]

    plain(kafka, "transactions", some(30))
    for turn in range(4):
        transaction(kafka, f"t{turn}", "transactions", some(20), "abort" if turn % 2 else "commit")
        plain(kafka, "transactions", some(5))
    unfinished = transaction(kafka, "open", "transactions", some(10), "leave open")
    plain(kafka, "transactions", some(7))
    options = LoadOptions(
        topic="transactions", table=str(tmp_path / "table"), bootstrap=kafka.bootstrap, max_records_per_task=13
    )
    report = load_topic(options, spark=spark)
    assert loaded(options.table) == consumed(kafka, "transactions", "read_committed")
    assert (sum(span.control for span in report.ranges), sum(span.aborted for span in report.ranges)) == (8, 40)
    assert sum(span.compacted for span in report.ranges) == 0
    assert audit(options.table) == []

    unfinished.commit_transaction(60)
    await_markers(kafka.bootstrap, "transactions", PARTITIONS)
    report = load_topic(options, spark=spark)
    assert report.rows == 17
    assert loaded(options.table) == consumed(kafka, "transactions", "read_committed")
    assert audit(options.table) == []

    everything = LoadOptions(
        topic="transactions",
        table=str(tmp_path / "everything"),
        bootstrap=kafka.bootstrap,
        isolation=Isolation.READ_UNCOMMITTED,
    )
    assert load_topic(everything, spark=spark).rows == report.rows + 40 + 90
    assert loaded(everything.table) == consumed(kafka, "transactions", "read_uncommitted")
    assert audit(everything.table) == []
    ledger = read_ledger(options.table)
    committed = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": load_topic(options, spark=spark).group})
    places = committed.committed([TopicPartition("transactions", partition) for partition in PARTITIONS], 120)
    committed.close()
    assert {place.partition: place.offset for place in places} == {
        partition: entry.next_offset for partition, entry in ledger.partitions.items()
    }


@pytest.mark.skipif(not (JARS / "no-tokens.jar").exists(), reason="`make peers` brings Spark's Kafka source")
@pytest.mark.parametrize("kafka", ["4.1"], indirect=True)
@pytest.mark.usefixtures("warm_loads")
def test_spark_s_connector_reads_the_same(spark, kafka, tmp_path):
    make_topic(kafka, "connector")
    plain(kafka, "connector", [(number % 2, b"p%d" % number) for number in range(50)])
    transaction(kafka, "c1", "connector", [(0, b"no")] * 5, "abort")
    transaction(kafka, "c2", "connector", [(1, b"yes")] * 5, "commit")
    table = str(tmp_path / "table")
    jars = ",".join(str(jar.absolute()) for jar in JARS.glob("*.jar"))

    def by_connector(command, into, *options):
        command = [
            *(sys.executable, "-m", "millrace_ops", "warehouse", command, "connector", "--json"),
            *("--table", into, "--bootstrap", kafka.bootstrap, "--reader", "spark-kafka"),
            *("--master", "local[2,3]", "--conf", f"spark.jars={jars}", *options),
        ]
        result = subprocess.run(command, capture_output=True, timeout=400, check=False, env=os.environ)
        assert result.returncode == 0, result.stderr.decode()[-4000:]
        return json.loads(result.stdout)

    report = by_connector("load", table, "--max-records-per-task", "20")
    assert (report["rows"], report["ranges"][0]["compacted"], report["ranges"][1]["compacted"]) == (55, 6, 1)
    other = LoadOptions(topic="connector", table=str(tmp_path / "other"), bootstrap=kafka.bootstrap)
    load_topic(other, spark=spark)
    assert loaded(table) == loaded(other.table) == consumed(kafka, "connector", "read_committed")
    first, second = (Table.load(each, OsFileSystem()) for each in (table, other.table))
    everything = [ds.dataset(each.files()).to_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
                  for each in (first, second)]  # fmt: skip
    assert everything[0] == everything[1]
    assert audit(table) == []

    plain(kafka, "connector", [(0, b"more")])
    again = LoadOptions(topic="connector", table=table, bootstrap=kafka.bootstrap)
    assert load_topic(again, spark=spark).rows == 1
    assert audit(table) == []

    third = LoadOptions(topic="connector", table=str(tmp_path / "third"), bootstrap=kafka.bootstrap)
    reload_topic(third, Selection(from_offset=10), spark=spark)
    report = by_connector("reload", third.table, "--from-offset", "5")
    assert [(span["partition"], span["from_offset"], span["until_offset"]) for span in report["backfilled"]] == [
        (partition, 5, 10) for partition in PARTITIONS
    ]
    assert [span["from_offset"] for span in report["replaced"]] == [10, 10]
    assert loaded(third.table) == [row for row in loaded(table) if row[1] >= 5]
    assert audit(third.table) == []
