"""A broker compacts a topic, by its own chore and when asked."""

import json
import urllib.request

import confluent_kafka
import kafka
import pytest

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.errors import BrokerError, ErrorCode, InvalidRecordError
from millrace.records.batch import walk
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess
from millrace_support.admin_requests import change_request
from millrace_support.waiting import until

CONFIG = {"cleanup.policy": "compact", "segment.bytes": "2000", "file.delete.delay.ms": "0"}
ON_REQUEST_ALONE = {"log.cleaner.backoff.ms": "3600000"}


@pytest.fixture
def broker(tmp_path):
    """Yields a broker that compacts only where a test asks for it."""
    with BrokerProcess(tmp_path / "broker", properties=ON_REQUEST_ALONE) as process:
        yield process


def compact(broker):
    request = change_request(broker, "maintenance/compaction")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def fetch_all(cluster, topic):
    consumer, offset, found = SimpleConsumer(cluster), 0, []
    end = consumer.latest(topic, 0)
    while offset < end:
        data = consumer.fetch(topic, 0, offset).records
        found += decode_records(data)
        offset = [header for _, header in walk(data)][-1].next_offset
    return found


def test_compaction_on_request_keeps_the_last_value_of_each_key_and_survives_a_restart(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("users", 1, config=CONFIG)
        producer = SyncProducer(cluster)
        for number in range(100):
            producer.send("users", 0, [NewRecord(b"%d" % number, key=b"%d" % (number % 4))])
        answer = compact(broker)
        (report,) = answer["partitions"]
        assert answer["action"] == "compaction"
        assert (report["topic"], report["passes"], report["error"]) == ("users", 1, "")
        assert report["bytes_after"] < report["bytes_before"]
        found = fetch_all(cluster, "users")
        assert {record.key: record.value for record in found} == {b"%d" % (n % 4): b"%d" % n for n in range(96, 100)}
        assert len(found) < 60
    broker.restart()
    with Cluster(broker.bootstrap) as cluster:
        assert fetch_all(cluster, "users") == found


def test_a_broker_compacts_by_itself_and_stops_cleanly_meanwhile(tmp_path):
    properties = {"log.cleaner.backoff.ms": "10", "log.cleaner.io.max.bytes.per.second": "20000"}
    with BrokerProcess(tmp_path / "broker", properties=properties) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("users", 1, config=CONFIG)
            for number in range(100):
                SyncProducer(cluster).send("users", 0, [NewRecord(b"%d" % number, key=b"%d" % (number % 4))])
            until(lambda: len(fetch_all(cluster, "users")) < 100)
        assert broker.stop() == 0
        assert (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_stock_clients_read_a_compacted_topic_to_its_end(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("users", 1, config=CONFIG)
        for number in range(100):
            SyncProducer(cluster).send("users", 0, [NewRecord(b"%d" % number, key=b"%d" % (number % 4))])
    compact(broker)
    expected = {b"%d" % (number % 4): b"%d" % number for number in range(96, 100)}
    assert read_by_librdkafka(broker.bootstrap) == expected
    assert read_by_kafka_python(broker.bootstrap) == expected


def read_by_librdkafka(bootstrap):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition("users", 0, 0)])
    found = {}
    while True:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        found[message.key()] = message.value()
        if message.offset() == 99:
            consumer.close()
            return found


def read_by_kafka_python(bootstrap):
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=60_000)
    partition = kafka.TopicPartition("users", 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found = {}
    for message in consumer:
        found[message.key] = message.value
        if message.offset == 99:
            break
    consumer.close()
    return found


def test_a_record_without_a_key_is_refused(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("users", 1, config=CONFIG)
        with pytest.raises((InvalidRecordError, BrokerError)) as refused:
            SyncProducer(cluster).send("users", 0, [NewRecord(b"keyless")])
        code = getattr(refused.value, "broker_code", refused.value.code)
        assert code == ErrorCode.INVALID_RECORD
