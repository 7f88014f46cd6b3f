"""Records leave from the file, by sendfile or by reads: whole, to fast readers and slow, whatever befalls the log."""

import time
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace_support.raw import RawConnection

WAYS = ["true", "false"]
RECORD_BYTES = 100_000


@pytest.fixture(params=WAYS)
def broker(request, tmp_path):
    """A broker whose records leave in one of the two ways."""
    properties = {
        "fetch.sendfile.enable": request.param,
        "log.segment.bytes": "5000000",
        "log.segment.delete.delay.ms": "0",
        "log.flush.scheduler.interval.ms": "20",
    }
    with BrokerProcess(tmp_path / "broker", properties=properties) as process:
        yield process


def values(count):
    return [n.to_bytes(4, "big") * (RECORD_BYTES // 4) for n in range(count)]


def fill(broker, count):
    with Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        for start in range(0, count, 5):
            producer.send("large", 0, [NewRecord(value) for value in values(count)[start : start + 5]])


def fetch_request(offset, max_bytes):
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    fields = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": max_bytes, "isolation_level": 0,
              "topics": [{"topic": "large", "partitions": [wanted]}], "forgotten_topics_data": []}  # fmt: skip
    return encode(ApiKey.FETCH, 11, Direction.REQUEST, fields)


def records_of(answer):
    return bytes(decode(ApiKey.FETCH, 11, Direction.RESPONSE, answer).responses[0].partitions[0].records)


def test_every_record_comes_out_as_it_went_in(broker):
    fill(broker, 200)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "fetch.message.max.bytes": 8_000_000}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.assign([TopicPartition("large", 0, 0)])
    expected = values(200)
    got = []
    while len(got) < 200:
        got += [message.value() for message in consumer.consume(50, timeout=60)]
    consumer.close()
    assert got == expected


def test_pipelined_fetches_and_small_requests_between_them_keep_their_order(broker):
    fill(broker, 60)
    with RawConnection(broker.bootstrap) as raw:
        for _ in range(10):
            raw.send(ApiKey.FETCH, 11, fetch_request(0, 5_000_000))
            raw.send(ApiKey.API_VERSIONS, 0, b"")
        for _ in range(10):
            assert len(records_of(raw.receive(ApiKey.FETCH, 11))) > 1_000_000
            assert raw.receive(ApiKey.API_VERSIONS, 0)


def resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10


def ask_and_do_not_read(broker):
    raw = RawConnection(broker.bootstrap, receive_buffer_bytes=1 << 16)
    raw.send(ApiKey.FETCH, 11, fetch_request(0, 50 << 20))
    return raw


def requests_handled(broker, api):
    text = urllib.request.urlopen(f"{broker.admin_url}/metrics").read().decode()
    line = next((line for line in text.splitlines() if line.startswith(f'millrace_requests_total{{api="{api}"}}')), "0")
    return float(line.split()[-1])


def await_fetches(broker, count):
    while requests_handled(broker, "fetch") < count:
        time.sleep(0.01)


def test_forty_readers_that_do_not_read_cost_little_memory(broker):
    fill(broker, 100)
    before = resident_bytes(broker.pid)
    readers = [ask_and_do_not_read(broker) for _ in range(40)]
    await_fetches(broker, 40)
    assert resident_bytes(broker.pid) - before < 40 * (3 << 20)
    with Cluster(broker.bootstrap) as cluster:
        assert SimpleConsumer(cluster).latest("large", 0) == 100
    for reader in readers:
        reader.close()


def test_a_slow_reader_gets_what_it_asked_for_though_the_log_has_let_it_go(broker):
    fill(broker, 100)
    slow = ask_and_do_not_read(broker)
    await_fetches(broker, 1)
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).delete_topic("large")
    while any(broker.data_dir.glob("large-0*")):
        time.sleep(0.01)
    records = records_of(slow.receive(ApiKey.FETCH, 11))
    assert values(1)[0] in records
    assert len(records) > 1_000_000
    slow.close()


def test_a_reader_that_leaves_amid_an_answer_disturbs_no_one(broker):
    fill(broker, 60)
    for _ in range(20):
        leaving = ask_and_do_not_read(broker)
        leaving.close(reset=True)
    with Cluster(broker.bootstrap) as cluster:
        found = SimpleConsumer(cluster).fetch("large", 0, 0, max_bytes=6_000_000)
    assert values(1)[0] in bytes(found.records)
    assert "Traceback" not in broker.read_log()
    assert broker.stop() == 0
