"""Spans from a real producer's records to their table's commit, as a collector gets them by OTLP."""

import subprocess
import sys
from secrets import randbits

import confluent_kafka
import pytest

from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess
from millrace.tracing import TraceContext
from millrace_ops.cli.warehouse import app
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_support.command_runner import CommandRunner
from millrace_support.trace_collector import TraceCollector

INTERNAL, CONSUMER = 1, 5
UNSAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@pytest.fixture(scope="module")
def collector():
    with TraceCollector() as running, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield running


@pytest.fixture(scope="module")
def traced_broker(tmp_path_factory, collector):
    with BrokerProcess(tmp_path_factory.mktemp("traced") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def spark():
    with spark_session("tests", local_master(1)) as session:
        yield session


@pytest.fixture
def topic(traced_broker, request):
    name = request.node.name.replace("[", ".").removesuffix("]")
    with Cluster(traced_broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, 1)
    return name


def send(broker, topic, *traceparents, **settings):
    """Sends records with these headers in one batch, however long it takes to hand them over: the flush sends it.

    The client knows the topic's partitions before: else it hands the records over one by one during the flush.
    """
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 60_000, **settings})
    producer.list_topics(topic)
    for traceparent in traceparents:
        headers = [("other", b"x"), *([] if traceparent is None else [("traceparent", str(traceparent).encode())])]
        producer.produce(topic, b'{"id": 1}', headers=headers)
    producer.flush()


def context():
    return TraceContext(randbits(128) | 1, randbits(64) | 1)


@pytest.fixture
def load(traced_broker, topic, spark, tmp_path):
    """Loads the topic by the command, and returns the table."""

    def run():
        words = ["load", topic, "--table", str(tmp_path / "table"), "--bootstrap", traced_broker.bootstrap]
        result = CommandRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return str(tmp_path / "table")

    return run


def test_one_trace_goes_from_the_producer_to_the_commit(collector, traced_broker, topic, load):
    sent = context()
    send(traced_broker, topic, None, sent, UNSAMPLED)
    table = load()

    (append,) = collector.named(f"append {topic}")
    assert (append.service, append.kind, append.parent, append.links) == ("millrace-broker", INTERNAL, sent, ())
    assert append.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "append",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.batch.message_count": 3,
    }
    (process,) = collector.named(f"process {topic}")
    assert (process.service, process.kind, process.parent, process.links) == ("millrace-load", CONSUMER, sent, ())
    assert process.attributes["messaging.batch.message_count"] == 3
    assert process.attributes["millrace.table"] == table
    (commit,) = collector.named(f"commit {topic}")
    assert (commit.parent, commit.links, commit.is_error) == (process.context, (), False)
    assert 0 < commit.nanoseconds < process.nanoseconds


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_several_traces_are_linked(collector, traced_broker, topic, load, codec):
    sent = [context(), context()]
    send(traced_broker, topic, *sent, sent[0], **{"compression.type": codec})
    load()
    for name in ("append", "process"):
        (span,) = collector.named(f"{name} {topic}")
        assert (span.parent, set(span.links)) == (None, set(sent))


def test_a_refused_batch_is_an_error(collector, traced_broker, topic):
    sent = context()
    with Cluster(traced_broker.bootstrap) as cluster:
        Admin(cluster).create_topic(f"{topic}.compacted", 1, config={"cleanup.policy": "compact"})
    send(traced_broker, f"{topic}.compacted", sent)
    (append,) = collector.named(f"append {topic}.compacted")
    assert append.is_error
    assert append.attributes["error.type"] == "RejectedRecordsError"


def test_what_can_not_be_served_stops_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    command = [sys.executable, "-m", "millrace_broker", "--standalone", "--data", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, timeout=240, check=False, text=True)
    assert done.returncode == 1
    assert "OTEL_TRACES_EXPORTER=zipkin: expected otlp, console or none" in done.stderr
