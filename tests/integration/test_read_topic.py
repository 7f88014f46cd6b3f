"""`read_topic`: all partitions as Arrow, pandas and polars, by offsets or by time, whatever the producer wrote."""

import gc
import subprocess
import sys
import threading
from datetime import UTC, datetime
from uuid import uuid4

import confluent_kafka
import polars as pl
import pyarrow as pa
import pytest

from millrace import Producer, ProducerRecord, SimpleConsumer, read_topic
from millrace.client import Admin, Cluster, SyncProducer
from millrace.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicError
from millrace.records.compression import Codec
from millrace.records.record import NewRecord
from millrace.testing.local_broker import LocalBroker

PARTITIONS, BATCHES, RECORDS = 3, 6, 10
KEEPS_ALL = {"retention.ms": "-1"}  # of records of 1970
DAY_MS = 86_400_000
HEADERS = (("a", b"1"), ("a", None), ("ä", b""))


def day(number):
    return datetime.fromtimestamp(number * DAY_MS / 1000, UTC)


@pytest.fixture(scope="module")
def topic(broker_session):
    """A topic whose batches have a codec each, and are a day apart."""
    name = f"read-{uuid4()}"
    with Cluster(broker_session.bootstrap) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS, config=KEEPS_ALL)
        producer = SyncProducer(cluster)
        for batch in range(BATCHES):
            for partition in range(PARTITIONS):
                made = [
                    NewRecord(
                        None if number == 3 else b"%d-%d-%d" % (partition, batch, number),
                        b"k" if number % 2 else None,
                        (batch + 1) * DAY_MS,
                        HEADERS if number == 5 else (),
                    )
                    for number in range(RECORDS)
                ]
                producer.send(name, partition, made, codec=[*Codec][batch % len(Codec)])
    return name


@pytest.fixture
def read(broker_session, topic):
    return lambda **asked: read_topic(topic, broker_session.bootstrap, **asked)


def offsets(rows):
    table = rows.arrow()
    pairs = zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    return {
        one: [offset for partition, offset in pairs if partition == one] for pairs in [[*pairs]] for one in range(3)
    }


def test_all_partitions_are_read_as_the_clients_read_them(broker_session, topic, read):
    with SimpleConsumer(broker_session.bootstrap) as consumer:
        expected = [
            (one, record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
            for one in range(PARTITIONS)
            for record in consumer.messages(topic, one)
        ]
    found = [
        (
            row["partition"], row["offset"], int(row["timestamp"].timestamp() * 1000), row["key"], row["value"],
            [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in read().arrow().to_pylist()
    ]  # fmt: skip
    assert found == expected
    assert len(found) == PARTITIONS * BATCHES * RECORDS


def test_each_form_has_the_same_rows_and_can_be_had_again(read):
    rows = read()
    table = rows.arrow()
    assert rows.schema == table.schema
    assert pa.Table.from_batches(rows, rows.schema) == table
    assert rows.reader().read_all() == table
    assert pa.table(rows) == table
    assert pl.from_arrow(table).equals(rows.pl())
    assert pa.Table.from_pandas(rows.df()).column("offset") == table.column("offset")
    shown = rows._repr_html_()
    assert (shown.count("<tr>"), "<td>0-0-1</td>" in shown, "the first 40 rows" in shown) == (41, True, True)
    assert repr(rows).endswith("3 partitions, 180 offsets; .df(), .pl() or .arrow() reads them>")


COUNT = BATCHES * RECORDS
ASKED = {
    "a partition": ({"partitions": [1]}, {0: (0, 0), 1: (0, COUNT), 2: (0, 0)}),
    "offsets within batches": ({"from_offset": 13, "until_offset": 27}, dict.fromkeys(range(3), (13, 27))),
    "offsets by partition": (
        {"from_offset": {0: 50}, "until_offset": {1: 7}},
        {0: (50, COUNT), 1: (0, 7), 2: (0, COUNT)},
    ),
    "an end above the log's": ({"until_offset": 10_000}, dict.fromkeys(range(3), (0, COUNT))),
    "a start above the log's end": ({"from_offset": 10_000}, dict.fromkeys(range(3), (0, 0))),
    "a start behind the end": ({"from_offset": 9, "until_offset": 5}, dict.fromkeys(range(3), (0, 0))),
    "a text as time": ({"from_time": "1970-01-03"}, dict.fromkeys(range(3), (10, COUNT))),
    "two times": ({"from_time": day(2), "until_time": day(4)}, dict.fromkeys(range(3), (10, 30))),
    "a time with a zone": ({"until_time": "1970-01-03T02:00:00+02:00"}, dict.fromkeys(range(3), (0, 10))),
    "a time behind the newest": ({"from_time": "2999-01-01"}, dict.fromkeys(range(3), (0, 0))),
    "a time and an offset": ({"from_time": day(3), "until_offset": 25}, dict.fromkeys(range(3), (20, 25))),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked_for_is_read(read, name):
    asked, expected = ASKED[name]
    assert offsets(read(**asked)) == {one: [*range(*span)] for one, span in expected.items()}


WRONG = [
    ({"from_offset": 1, "from_time": "2026-01-01"}, InvalidRequestError, "from_offset and from_time"),
    ({"until_time": "tomorrow"}, InvalidRequestError, "until_time=tomorrow"),
    ({"until_offset": {7: 1}}, InvalidRequestError, "-7 is not among what is read"),
    ({"partitions": [7]}, UnknownTopicError, "has no partition 7: it has 3"),
    ({"isolation": "serializable"}, InvalidRequestError, "read_uncommitted, read_committed"),
]


@pytest.mark.parametrize(("asked", "error", "words"), WRONG, ids=str)
def test_what_cannot_be_asked_for_is_said_at_once(read, asked, error, words):
    with pytest.raises(error) as refused:
        read(**asked)
    assert words in str(refused.value)


def test_an_unknown_topic_is_said_at_once(broker_session):
    with pytest.raises(UnknownTopicError):
        read_topic("nowhere", broker_session.bootstrap)


def test_offsets_that_the_log_has_no_more_stop_the_read(broker_session):
    name = f"read-{uuid4()}"
    with Producer(broker_list=broker_session.bootstrap) as producer:
        producer.send([ProducerRecord(name, b"%d" % number, partition=0) for number in range(9)])
    with Cluster(broker_session.bootstrap) as cluster:
        Admin(cluster).delete_records(name, 0, 5)
    assert read_topic(name, broker_session.bootstrap).arrow().column("offset").to_pylist() == [5, 6, 7, 8]
    with pytest.raises(OffsetOutOfRangeError):
        read_topic(name, broker_session.bootstrap, from_offset=4).arrow()


def test_records_that_come_later_are_those_of_another_call(broker_session):
    name = f"read-{uuid4()}"
    with Producer(broker_list=broker_session.bootstrap) as producer:
        producer.send(name, b"first", partition=0)
        rows = read_topic(name, broker_session.bootstrap)
        producer.send(name, b"second", partition=0)
    assert rows.arrow().column("value").to_pylist() == [b"first"]
    assert read_topic(name, broker_session.bootstrap).arrow().num_rows == 2


@pytest.mark.parametrize(
    ("isolation", "expected"), [("read_committed", [b"c"]), ("read_uncommitted", [b"a", b"c", b"o"])]
)
def test_the_isolation_decides_on_records_of_transactions(broker_session, isolation, expected):
    name = f"read-{uuid4()}"
    producer = confluent_kafka.Producer({"bootstrap.servers": broker_session.bootstrap, "transactional.id": name})
    producer.init_transactions()
    for value, end in ((b"a", producer.abort_transaction), (b"c", producer.commit_transaction), (b"o", None)):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        assert producer.flush(30) == 0
        if end is not None:
            end()
    rows = read_topic(name, broker_session.bootstrap, isolation=isolation)
    assert rows.arrow().column("value").to_pylist() == expected
    producer.abort_transaction()


def test_whoever_stops_early_leaves_no_thread_behind(read):
    before = threading.active_count()
    for _ in range(3):
        batches = iter(read())
        next(batches)
        batches.close()
        read()._repr_html_()
    gc.collect()
    assert threading.active_count() == before


def test_a_secured_cluster_is_read_by_its_properties():
    with LocalBroker(security="SASL_SSL") as broker:
        broker.create_topic("orders")
        broker.produce("orders", [b"secret"])
        rows = read_topic("orders", broker.bootstrap, **broker.client_properties)
        assert rows.arrow().column("value").to_pylist() == [b"secret"]
        with SimpleConsumer(bootstrap_servers=broker.bootstrap, **broker.client_properties) as consumer:
            assert [record.value for record in consumer.messages("orders", 0)] == [b"secret"]


# A program of its own: the most memory that it ever had is its own.
READS_BY_BATCH = """
import resource
import sys

from millrace import read_topic

bootstrap, few, many = sys.argv[1:]
peaks = []
for topic in (few, many):
    rows = sum(batch.num_rows for batch in read_topic(topic, bootstrap))
    peaks.append((rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))
print(peaks)
"""


def test_what_is_read_batch_by_batch_may_be_larger_than_memory(broker_session):
    """The batches expand two hundredfold, so that a fetch brings hundreds of megabytes."""
    few, many = f"few-{uuid4()}", f"many-{uuid4()}"
    value = bytes(1000)
    with Cluster(broker_session.bootstrap) as cluster:
        for topic, batches in ((few, 20), (many, 1000)):
            Admin(cluster).create_topic(topic, 1, config=KEEPS_ALL)
            for _ in range(batches):
                SyncProducer(cluster).send(topic, 0, [NewRecord(value)] * 1000, codec=Codec.LZ4)
    command = [sys.executable, "-c", READS_BY_BATCH, broker_session.bootstrap, few, many]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (few_rows, few_mib), (many_rows, many_mib) = eval(done.stdout)
    assert (few_rows, many_rows) == (20_000, 1_000_000)
    assert many_mib < few_mib + 400  # of 1,000: a block of 64 MiB is decoded, one waits, one is in use
