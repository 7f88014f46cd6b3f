"""A log of transactions with a damaged batch: committed records behind it are read, aborted ones never are."""

from pathlib import Path

import confluent_kafka
import pytest

from millrace import read_topic
from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.records.batch import HEADER_BYTES, walk
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.spark.source.options import parse_options
from millrace_pipelines.spark.source.rows import TopicRange, read_offsets

pytestmark = pytest.mark.broker_errors(r"segments\.damage_search: ")

TOPIC, ROUNDS = "events", 4
SETTINGS = {"log.index.interval.bytes": "1"}
ENDS = 4 * ROUNDS  # each round has an aborted record, its marker, a committed record, its marker
DAMAGES = {"base offset": 2, "length far": 8, "magic": 16, "crc": 17, "body": HEADER_BYTES + 3}


@pytest.fixture(scope="module")
def broker(zookeeper, tmp_path_factory):
    folder, connect = tmp_path_factory.mktemp("transactions") / "data", f"{zookeeper.address}/transactions"
    with BrokerProcess(folder, zookeeper=connect, properties=SETTINGS) as process:
        with Cluster(process.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, 1)
        producer = confluent_kafka.Producer({"bootstrap.servers": process.bootstrap, "transactional.id": TOPIC})
        producer.init_transactions(60)
        for number in range(ROUNDS):
            for value, end in ((b"no", producer.abort_transaction), (b"%d" % number, producer.commit_transaction)):
                producer.begin_transaction()
                producer.produce(TOPIC, value, partition=0)
                assert producer.flush(60) == 0
                end(60)
        yield process


@pytest.fixture(params=DAMAGES)
def damage(broker, request):
    """Damages the batch of an offset for the time of a test."""
    [segment] = Path(broker.data_dir, f"{TOPIC}-0").glob("*.log")
    content = segment.read_bytes()

    def at_offset(offset):
        position = list(walk(content))[offset][0] + DAMAGES[request.param]
        with segment.open("r+b") as file:
            file.seek(position)
            file.write(bytes([content[position] ^ 1]))

    yield at_offset
    with segment.open("r+b") as file:
        file.write(content)


def by_client(broker):
    with SimpleConsumer(broker.bootstrap, accept_missing_offsets=True) as consumer:
        found = consumer.messages(TOPIC, 0, isolation=IsolationLevel.READ_COMMITTED)
        return [(record.offset, record.value) for record in found]


def by_source(broker):
    given = parse_options({"bootstrap": broker.bootstrap, "topic": TOPIC, "failOnDataLoss": "false"})
    blocks = read_offsets(TopicRange(TOPIC, 0, 0, ENDS), given, ENVELOPE_SCHEMA)
    return [(row["offset"], row["value"]) for block in blocks for row in block.to_pylist()]


def by_arrow(broker):
    rows = read_topic(TOPIC, broker.bootstrap, accept_missing_offsets=True).arrow().to_pylist()
    return [(row["offset"], row["value"]) for row in rows]


@pytest.mark.parametrize("read", [by_client, by_source, by_arrow])
@pytest.mark.parametrize("offset", range(4, 8), ids=["aborted record", "abort marker", "record", "commit marker"])
def test_committed_records_around_a_damaged_batch_are_read(broker, damage, offset, read):
    damage(offset)
    expected = [(4 * number + 2, b"%d" % number) for number in range(ROUNDS)]
    assert read(broker) == [record for record in expected if record[0] != offset]
