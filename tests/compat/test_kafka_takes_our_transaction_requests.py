"""Apache Kafka as the coordinator of a transaction, and as the leader of its partition, takes our brokers' requests."""

import asyncio

import pytest

from millrace.addresses import parse_address
from millrace.client import Admin, Cluster
from millrace.errors import ErrorCode
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.admission import Question, ask_about_partitions
from millrace_broker.txns.markers import Marker, MarkerToSend, write_markers
from millrace_broker.txns.state import Producer
from millrace_support.raw import RawConnection

ADDED, MISSING = TopicPartition("events", 0), TopicPartition("events", 1)
NOWHERE = TopicPartition("nowhere", 0)
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture(scope="module")
def broker(find_peer, tmp_path_factory, zookeeper):
    place = tmp_path_factory.mktemp("theirs")
    address = f"{zookeeper.address}/{place.name}"
    with KafkaBroker(find_peer("3.9"), place / "data", zookeeper=address, properties=SETTINGS) as kafka:
        with Cluster(kafka.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 2)
        yield kafka


@pytest.fixture
def ask(broker):
    """Sends items to the broker by one of the functions of the transactions."""

    async def sent(send, items):
        address = parse_address(broker.bootstrap)
        link = await BrokerLink.connect(address, client_id="ours", timeout_s=60.0, max_response_bytes=1 << 20)
        try:
            return await send(link, items)
        finally:
            link.close()

    return lambda send, *items: asyncio.run(sent(send, items))


def initialized(raw, transactional_id):
    fields = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
    while raw.request(ApiKey.FIND_COORDINATOR, 1, {"key": transactional_id, "key_type": 1}).error_code:
        pass
    while (answer := raw.request(ApiKey.INIT_PRODUCER_ID, 4, fields)).error_code:
        pass
    return Producer(answer.producer_id, answer.producer_epoch)


def test_kafka_adds_verifies_and_ends(broker, ask):
    with RawConnection(broker.bootstrap) as raw:
        initialized(raw, "t")
        producer = initialized(raw, "t")
        assert ask(ask_about_partitions, Question("t", producer, (ADDED,), False)) == [{ADDED: ErrorCode.NONE}]
        verified = ask(
            ask_about_partitions,
            Question("t", producer, (ADDED, MISSING), True),
            Question("unknown", producer, (ADDED,), True),
            Question("t", producer._replace(epoch=producer.epoch + 1), (ADDED,), True),
        )
        assert verified == [
            {ADDED: ErrorCode.NONE, MISSING: ErrorCode.TRANSACTION_ABORTABLE},
            {ADDED: ErrorCode.INVALID_PRODUCER_ID_MAPPING},
            {ADDED: ErrorCode.PRODUCER_FENCED},
        ]
        batch = encode_batch([NewRecord(b"v")], producer=BatchProducer(*producer, 0), flags=TRANSACTIONAL_FLAG)
        data = [{"name": "events", "partition_data": [{"index": 0, "records": batch}]}]
        fields = {"transactional_id": "t", "acks": -1, "timeout": 5000, "topic_data": data}
        (produced,) = raw.request(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses
        assert produced.error_code == 0
        marker = Marker(producer, True, 0)
        written = ask(write_markers, MarkerToSend(ADDED, marker), MarkerToSend(NOWHERE, marker))
        assert written == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        late = Marker(producer._replace(epoch=0), True, 0)
        assert ask(write_markers, MarkerToSend(ADDED, late)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        fields = {
            "replica_id": -1, "max_wait": 20_000, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1,
            "topics": [{"topic": "events", "partitions": [wanted]}], "forgotten_topics_data": [],
        }  # fmt: skip
        (fetched,) = raw.request(ApiKey.FETCH, 11, fields).responses[0].partitions
        assert fetched.last_stable_offset == 2
