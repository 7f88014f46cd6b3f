"""The data source's readers on a real Apache Kafka, with transactions; what they decide needs no Spark."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millrace_benchmarks.kafka_broker import KafkaBroker, await_markers, find_kafka
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.spark.source.options import parse_options
from millrace_pipelines.spark.source.readers import BatchReader, StreamReader

pytestmark = pytest.mark.peers
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with KafkaBroker(find_kafka("4.1"), tmp_path_factory.mktemp("kafka") / "data", properties=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("payments", 1, 1)])["payments"].result(TIMEOUT_S)
        yield broker


def produce(kafka, name, values):
    settings = {"transactional.id": name, "transaction.timeout.ms": 900_000, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **settings})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce("payments", value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def end(kafka, producer, *, commit=True):
    producer.commit_transaction(TIMEOUT_S) if commit else producer.abort_transaction(TIMEOUT_S)
    await_markers(kafka.bootstrap, "payments")


def options(kafka, **more):
    return parse_options({"bootstrap": kafka.bootstrap, "topic": "payments", **more})


def values(reader, partitions):
    return [value.as_py() for one in partitions for batch in reader.read(one) for value in batch.column("value")]


def test_transactions_are_read_as_the_isolation_says(kafka):
    end(kafka, produce(kafka, "a", [b"kept"]))  # offset 0, its marker 1
    end(kafka, produce(kafka, "b", [b"aborted", b"aborted"]), commit=False)  # 2, 3, its marker 4
    end(kafka, produce(kafka, "c", [b"kept too"]))  # 5, its marker 6
    still_open = produce(kafka, "d", [b"open"])  # 7
    committed = BatchReader(options(kafka), ENVELOPE_SCHEMA)
    assert values(committed, committed.partitions()) == [b"kept", b"kept too"]
    in_pieces = BatchReader(options(kafka, maxRecordsPerTask="3"), ENVELOPE_SCHEMA)
    assert len(in_pieces.partitions()) == 3
    assert values(in_pieces, in_pieces.partitions()) == [b"kept", b"kept too"]
    everything = BatchReader(options(kafka, isolation="read_uncommitted"), ENVELOPE_SCHEMA)
    assert values(everything, everything.partitions()) == [b"kept", b"aborted", b"aborted", b"kept too", b"open"]
    stream = StreamReader(options(kafka, startingOffsets="earliest"), ENVELOPE_SCHEMA)
    try:
        start = stream.initialOffset()
        middle = stream.latestOffset(start, ReadMaxRows(4))
        stable = stream.latestOffset(middle, ReadAllAvailable())
        assert values(stream, stream.partitions(start, middle)) == [b"kept"]
        assert values(stream, stream.partitions(middle, stable)) == [b"kept too"]
        assert stream.latestOffset(stable, ReadAllAvailable()) is stable
        end(kafka, still_open)
        assert values(stream, stream.partitions(stable, stream.latestOffset(stable, ReadAllAvailable()))) == [b"open"]
    finally:
        stream.stop()
