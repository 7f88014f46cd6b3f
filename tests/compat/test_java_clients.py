"""Apache Kafka's own producer and consumer, of 3.9 and 4.1, by its command-line tools against a Millrace broker."""

import json

import pytest

from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.records.batch import NO_PRODUCER_ID, walk
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_support.kafka_tools import PATIENT_PRODUCER

pytestmark = pytest.mark.peers

LINES = [f"line {number}" for number in range(500)]
TOPIC = "java"


@pytest.fixture(scope="module")
def java_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("java")) as process:
        yield process


@pytest.fixture(scope="module")
def tools():
    kafka = find_kafka("4.1")
    if not any(kafka.libs.glob("kafka-tools-[0-9]*.jar")):
        pytest.skip("Apache Kafka's tools are not in .peers")
    return kafka


def test_the_console_producer_of_3_9_is_idempotent(java_broker):
    stdin = "".join(f"{line}\n" for line in LINES).encode()
    find_kafka("3.9").run(
        "kafka.tools.ConsoleProducer", "--bootstrap-server", java_broker.bootstrap, "--topic", TOPIC, *PATIENT_PRODUCER,
        stdin=stdin,
    )  # fmt: skip
    with Cluster(java_broker.bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        assert consumer.latest(TOPIC, 0) == len(LINES)
        headers = [header for _, header in walk(bytes(consumer.fetch(TOPIC, 0, 0).records))]
    assert NO_PRODUCER_ID not in {header.producer_id for header in headers}


def test_the_verifiable_producer_of_4_1(java_broker, tools):
    output = tools.run(
        "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", java_broker.bootstrap, "--topic", TOPIC,
        "--max-messages", "300",
    )  # fmt: skip
    sent = [
        json.loads(line) for line in output.splitlines() if line.startswith("{") and "producer_send_success" in line
    ]
    assert [one["offset"] for one in sent] == list(range(len(LINES), len(LINES) + 300))


def test_the_console_consumer_of_4_1_reads_all(java_broker, tools):
    output = tools.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", java_broker.bootstrap,
        "--topic", TOPIC, "--partition", "0", "--offset", "earliest", "--max-messages", str(len(LINES) + 300),
        "--timeout-ms", "120000",
    )  # fmt: skip
    assert [line for line in output.splitlines() if line.startswith("line ")] == LINES


@pytest.mark.parametrize(("time", "offset"), [("-2", 0), ("-1", len(LINES) + 300)])
def test_get_offsets_of_4_1(java_broker, tools, time, offset):
    output = tools.run(
        "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", java_broker.bootstrap, "--topic", TOPIC,
        "--time", time,
    )  # fmt: skip
    assert f"{TOPIC}:0:{offset}" in output.splitlines()
