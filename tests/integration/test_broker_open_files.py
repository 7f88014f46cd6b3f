"""A broker with more segments than the operating system lets it have files."""

import json
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess
from millrace_support.admin_requests import change_request

OPEN_FILES = 80
PARTITIONS = 30
RECORDS = 12
CONFIG = {"segment.bytes": "1500", "file.delete.delay.ms": "0"}
PROPERTIES = {"log.flush.scheduler.interval.ms": "50"}


@pytest.fixture
def crowded_broker(tmp_path):
    with BrokerProcess(tmp_path / "broker", properties=PROPERTIES, open_files=OPEN_FILES) as process:
        yield process


def value(partition, number):
    return b"%d/%d " % (partition, number) * 100


def fill(cluster):
    producer = SyncProducer(cluster)
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.send("events", partition, [NewRecord(value(partition, number))])


def read(bootstrap, partition):
    with Cluster(bootstrap) as cluster:
        consumer, values = SimpleConsumer(cluster), []
        while len(values) < RECORDS:
            data = consumer.fetch("events", partition, len(values)).records
            values += [record.value for record in decode_records(data)]
        return values


def check_all(broker):
    expected = [[value(partition, number) for number in range(RECORDS)] for partition in range(PARTITIONS)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda each: read(broker.bootstrap, each), range(PARTITIONS))) == expected
    assert len(os.listdir(f"/proc/{broker.pid}/fd")) < OPEN_FILES


def post(broker, action):
    request = change_request(broker, f"maintenance/{action}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["partitions"]


def test_more_segments_than_descriptors_are_served_checked_and_recovered(crowded_broker):
    broker = crowded_broker
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", PARTITIONS, config=CONFIG)
        fill(cluster)
        check_all(broker)
        assert len(list(broker.data_dir.glob("events-*/*.log"))) > 4 * OPEN_FILES // 3
        assert sum(report["records"] for report in post(broker, "verify")) == PARTITIONS * RECORDS
    broker.restart()
    check_all(broker)
    broker.kill()
    broker.start()
    check_all(broker)
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).delete_topic("events")
    assert broker.stop() == 0
    assert "Too many open files" not in broker.read_log()
