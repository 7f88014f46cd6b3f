"""`spark.read` and `spark.readStream` with format("millrace"), on a real broker, by a real Spark."""

import json
import re
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from tenacity import retry, retry_if_exception_message, stop_after_attempt

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.compression import Codec
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.spark.source import MillraceDataSource
from millrace_pipelines.spark.source.options import parse_options

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
# Spark gives the Python process of a stream ten seconds to start, which are few on a machine that does much else.
workers_may_start_late = retry(
    retry=retry_if_exception_message(match=r"(?s).*(failed|Python worker) to connect back"),
    stop=stop_after_attempt(10),
    reraise=True,
)
# Records are of years ago: retention, which runs every five minutes, keeps them.
PROPERTIES = {"log.segment.delete.delay.ms": "0", "log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def spark(warm_processes):
    with spark_session("source", local_master(2)) as session:
        session.dataSource.register(MillraceDataSource)
        session.conf.set("spark.sql.codegen.wholeStage", "false")  # compiling costs more than these few rows
        session.conf.set("spark.sql.shuffle.partitions", "1")
        yield session


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all tests here; each has a topic of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", properties=PROPERTIES) as process:
        yield process


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as one:
        yield one


@pytest.fixture
def topic(cluster, request):
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)
    Admin(cluster).create_topic(name, 2)
    return name


@pytest.fixture
def send(cluster, topic):
    """Sends values to a partition, their times a second apart from FIRST on, by their offsets."""

    def produce(partition, *values, to=topic, codec=Codec.NONE):
        return SyncProducer(cluster).send(
            to,
            partition,
            [
                value
                if isinstance(value, NewRecord)
                else NewRecord(value, timestamp_ms=round((FIRST + timedelta(seconds=n)).timestamp() * 1000))
                for n, value in enumerate(values)
            ],
            codec=codec,
        )

    return produce


@pytest.fixture
def read(spark, broker, topic):
    def batch(**options):
        given = {"bootstrap": broker.bootstrap, "topic": topic} | options
        return spark.read.format("millrace").options(**{name: one for name, one in given.items() if one}).load()

    return batch


@pytest.fixture
def stream(spark, broker, topic, tmp_path):
    """Runs a stream to the current end, by one checkpoint; returns (batch id, partition, offset) of all rows."""

    @workers_may_start_late
    def run(sink, **options):
        given = {"bootstrap": broker.bootstrap, "topic": topic, "startingOffsets": "earliest"} | options
        query = (
            spark.readStream.format("millrace")
            .options(**{name: one for name, one in given.items() if one})
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    return run


class Sink:
    """Keeps each batch under its number, so that one that is given again replaces itself."""

    def __init__(self, fail_at=None, before=lambda: None):
        self.batches, self.fail_at, self.before = {}, fail_at, before

    def __call__(self, rows, batch_id):
        self.batches[batch_id] = [(row.partition, row.offset) for row in rows.select("partition", "offset").collect()]
        if batch_id == self.fail_at:
            self.before()
            raise OSError("the sink broke")

    @property
    def offsets(self):
        return Counter(place for batch in self.batches.values() for place in batch)


def offsets(rows):
    return sorted((row.partition, row.offset) for row in rows.select("partition", "offset").collect())


def test_the_raw_envelope(read, send):
    headers = (("trace", b"\x00\xff"), ("empty", None))
    sent = [
        NewRecord(b"v" * n, key=b"k" if n % 2 else None, timestamp_ms=1_700_000_000_000 + n, headers=headers[: n % 3])
        for n in range(50)
    ]
    for codec in Codec:
        send(0, *sent, NewRecord(None, key=b"gone", timestamp_ms=1), codec=codec)
    rows = read()
    assert rows.columns == ENVELOPE_SCHEMA.names
    found = rows.orderBy("offset").collect()
    for row, record in zip(found, [*sent, NewRecord(None, key=b"gone", timestamp_ms=1)] * len(Codec), strict=True):
        assert (row.key, row.value) == (record.key, record.value)
        assert [(header.key, header.value) for header in row.headers] == list(record.headers)
    milliseconds = read().orderBy("offset").selectExpr("unix_millis(timestamp) at").limit(50).collect()
    assert [row.at for row in milliseconds] == [record.timestamp_ms for record in sent]


def test_a_schema_may_leave_columns_out(spark, broker, topic, send):
    send(0, b"a", b"b")
    source = spark.read.format("millrace").options(bootstrap=broker.bootstrap, topic=topic)
    rows = source.schema("value BINARY, offset LONG").load().collect()
    assert [(bytes(row.value), row.offset) for row in rows] == [(b"a", 0), (b"b", 1)]
    with pytest.raises(PySparkException, match="SourceOptionError: schema: city string is no column of a topic"):
        source.schema("city STRING").load().collect()


def test_offsets_and_times_choose_a_range(read, send, topic):
    send(0, *[b"a"] * 20)
    send(1, *[b"b"] * 20)
    by_partition = {"startingOffsets": json.dumps({topic: {"0": 15, "1": -2}}),
                    "endingOffsets": json.dumps({topic: {"0": -1, "1": 3}})}  # fmt: skip
    assert offsets(read(**by_partition)) == [(0, n) for n in range(15, 20)] + [(1, n) for n in range(3)]
    ten = (FIRST + timedelta(seconds=10)).isoformat()
    twelve = str(round((FIRST + timedelta(seconds=12)).timestamp() * 1000))
    assert offsets(read(startingTime=ten, endingTime=twelve)) == [(0, 10), (0, 11), (1, 10), (1, 11)]
    assert offsets(read(partitions="1", startingOffsets="latest")) == []
    assert offsets(read(startingTime="2099-01-01")) == []
    assert offsets(read(startingTime="1969-12-31T23:59:59.999")) == offsets(read())


def test_a_range_is_split_into_tasks_that_are_repeated_without_duplicates(read, send, tmp_path):
    send(0, *[b"a"] * 1000)
    rows = read(maxRecordsPerTask="150", partitions="0")
    assert rows.rdd.getNumPartitions() == 7
    marker = tmp_path / "failed once"

    def fail_once(batches):
        yield from batches
        if not marker.exists():
            marker.touch()
            raise OSError("the executor was lost")

    found = rows.select("offset").mapInArrow(fail_once, "offset long").collect()
    assert marker.exists()
    assert sorted(row.offset for row in found) == list(range(1000))


def test_filters_narrow_what_is_fetched(spark, read, send):
    send(0, *[b"a"] * 100)
    send(1, *[b"b"] * 100)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = read(maxRecordsPerTask="10").where("partition = 1 AND offset >= 35 AND offset < 50")
        assert rows.rdd.getNumPartitions() == 2
        assert offsets(rows) == [(1, n) for n in range(35, 50)]
        assert "Filter (" not in rows._jdf.queryExecution().executedPlan().toString()
        since = read(maxRecordsPerTask="10").where(f.col("timestamp") >= f.lit(FIRST + timedelta(seconds=90)))
        assert since.rdd.getNumPartitions() == 2
        assert offsets(since) == [(p, n) for p in (0, 1) for n in range(90, 100)]
        until = read().where(f.col("timestamp") < f.lit(FIRST + timedelta(seconds=2)))
        assert offsets(until) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert offsets(read().where("topic = 'another'")) == []
        assert len(offsets(read())) == 200
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert offsets(read().where("partition = 1 AND offset = 35")) == [(1, 35)]


def test_several_topics_and_patterns(cluster, read, send, topic):
    other = f"{topic}-other"
    Admin(cluster).create_topic(other, 1)
    send(0, b"a")
    send(0, b"b", to=other)
    count = {"topic": None}
    assert read(topics=f"{topic},{other}", **count).select("topic").distinct().count() == 2
    assert [row.topic for row in read(topicPattern=f"{topic}-o.*", **count).collect()] == [other]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOfset": "earliest"}, "SourceOptionError: startingofset: unknown option; there are bootstrap"),
        ({"bootstrap": None}, "SourceOptionError: bootstrap: this option is needed"),
        ({"maxRecordsPerTrigger": "5"}, "SourceOptionError: maxRecordsPerTrigger: not an option of a batch"),
        ({"topic": "nowhere"}, "AbsentTopicError: topic nowhere does not exist"),
        ({"partitions": "7"}, "SourceOptionError: partitions: 7-7: no topic that is read has them"),
        ({"bootstrap": "127.0.0.1:1"}, "BrokerUnreachableError: no broker answers at 127.0.0.1:1"),
    ],
)
def test_errors_are_named_through_spark(read, options, message):
    with pytest.raises(PySparkException) as refused:
        read(**options).collect()
    assert message in str(refused.value)


def test_lost_offsets_stop_a_batch_or_are_left_out(cluster, read, send, topic):
    send(0, *[b"a"] * 10)
    Admin(cluster).delete_records(topic, 0, 6)
    wanted = {"startingOffsets": json.dumps({topic: {"0": 2, "1": 0}})}
    with pytest.raises(PySparkException, match=r"OffsetsLostError: .*partition 0: offsets 2-5 were deleted"):
        read(**wanted).collect()
    assert offsets(read(**wanted, failOnDataLoss="false")) == [(0, n) for n in range(6, 10)]
    beyond = {"startingOffsets": json.dumps({topic: {"0": 50, "1": 0}})}
    with pytest.raises(PySparkException, match=r"LogTruncatedError: .*offset 50 is asked for, the log ends at 10"):
        read(**beyond).collect()


def test_offsets_lost_under_a_planned_query(cluster, read, send, topic):
    send(0, *[b"a"] * 10)
    planned, tolerant = read(), read(failOnDataLoss="false")
    assert planned.rdd.getNumPartitions() == tolerant.rdd.getNumPartitions() == 1
    Admin(cluster).delete_records(topic, 0, 6)
    with pytest.raises(PySparkException, match=r"OffsetsLostError: .*the log begins at 6 now"):
        planned.collect()
    assert offsets(tolerant) == [(0, n) for n in range(6, 10)]


def test_a_stream_s_limit_and_restart(stream, send):
    sink = Sink()
    send(0, *[b"a"] * 70)
    send(1, *[b"b"] * 30)
    stream(sink, maxRecordsPerTrigger="40")
    assert [len(batch) for batch in sink.batches.values()] == [40, 40, 20]
    send(0, *[b"c"] * 10)
    stream(sink, maxRecordsPerTrigger="40")
    assert len(sink.offsets) == 110
    assert set(sink.offsets.values()) == {1}
    assert stream(sink).lastProgress is None or len(sink.offsets) == 110


def test_a_failed_batch_comes_again_with_the_same_offsets(stream, send):
    send(0, *[b"a"] * 100)
    broken = Sink(fail_at=1, before=lambda: send(0, *[b"late"] * 50))
    with pytest.raises(PySparkException, match="the sink broke"):
        stream(broken, maxRecordsPerTrigger="30", maxRecordsPerTask="7")
    assert sorted(broken.batches) == [0, 1]
    mended = Sink()
    stream(mended, maxRecordsPerTrigger="60", maxRecordsPerTask="7")
    assert sorted(mended.batches[1]) == sorted(broken.batches[1])
    assert min(mended.batches) == 1
    together = Counter(broken.batches[0]) + mended.offsets
    assert together == Counter({(0, n): 1 for n in range(150)})


def test_bytes_limit_a_stream(stream, send):
    sink = Sink()
    for _ in range(10):
        send(0, *[b"x" * 1000] * 10)
    stream(sink, maxBytesPerTrigger="30000")
    assert 3 <= len(sink.batches) <= 5
    assert len(sink.offsets) == 100


def test_a_stream_notices_a_recreated_topic_after_a_restart(cluster, stream, send, topic):
    sink = Sink()
    send(0, b"a", b"b")
    stream(sink)
    Admin(cluster).delete_topic(topic)
    Admin(cluster).create_topic(topic, 2)
    send(0, b"c", b"d", b"e")
    with pytest.raises(PySparkException, match=r"TopicRecreatedError: topic \S+ was deleted and created again"):
        stream(sink)
    assert len(sink.offsets) == 2
    stream(sink, failOnDataLoss="false")
    assert sink.offsets == Counter({(0, 0): 2, (0, 1): 2, (0, 2): 1})


def test_a_stream_notices_lost_offsets(cluster, stream, send, topic):
    sink = Sink()
    send(0, *[b"a"] * 10)
    stream(sink)
    send(0, *[b"b"] * 10)
    Admin(cluster).delete_records(topic, 0, 15)
    with pytest.raises(PySparkException, match=r"OffsetsLostError: .*offsets 10-14 were deleted by retention"):
        stream(sink)
    stream(sink, failOnDataLoss="false")
    assert sorted(sink.offsets) == [(0, n) for n in [*range(10), *range(15, 20)]]


def test_a_stream_takes_new_partitions_and_topics_from_their_start(cluster, stream, send, topic):
    sink = Sink()
    pattern = {"topic": None, "topicPattern": f"{topic}.*"}
    send(0, b"a")
    stream(sink, **pattern)
    other = f"{topic}-{uuid.uuid4().hex[:8]}"
    Admin(cluster).create_topic(other, 3)
    send(2, b"b", b"c", to=other)
    stream(sink, **pattern)
    assert sink.offsets == Counter({(0, 0): 1, (2, 0): 1, (2, 1): 1})


def test_what_belongs_to_a_batch_alone_is_refused_for_a_stream(stream):
    with pytest.raises(PySparkException, match="SourceOptionError: endingOffsets: not an option of a stream"):
        stream(Sink(), endingOffsets="latest")
    assert parse_options({"bootstrap": "h:1", "topic": "t"}).starting is None
