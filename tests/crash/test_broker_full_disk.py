"""A broker that may not write any further: a real limit of the operating system, on a broker of its own."""

import resource

import pytest

from millrace.client import cluster as client_cluster
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.errors import StorageError
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess


def limit_file_size(pid, size_bytes):
    """Let no file of the process grow above a size; what a full disk answers, EFBIG in place of ENOSPC."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


def read_all(cluster, topic):
    consumer = SimpleConsumer(cluster)
    offset, end, values = consumer.earliest(topic, 0), consumer.latest(topic, 0), []
    while offset < end:
        records = [each for each in decode_records(consumer.fetch(topic, 0, offset).records) if each.offset >= offset]
        values += [each.value for each in records]
        offset = records[-1].offset + 1
    return values


def send(producer, topic, value):
    return producer.send(topic, 0, [NewRecord(value)])


@pytest.mark.broker_errors(r"storage\.failures: \S+: the disk is full, and appends are refused: \[Errno 27\]")
@pytest.mark.parametrize("flush", ["1", "1000000"])
def test_appends_are_refused_until_there_is_room_and_nothing_is_lost(tmp_path, flush, monkeypatch):
    settings = {"log.flush.interval.messages": flush, "log.index.interval.bytes": "0"}
    with BrokerProcess(tmp_path, properties=settings) as broker:
        values = [b"%d" % number * 1000 for number in range(10)]
        with Cluster(broker.bootstrap) as cluster:
            producer = SyncProducer(cluster)
            for value in values[:5]:
                send(producer, "events", value)
            (segment,) = tmp_path.glob("events-0/*.log")
            written = segment.stat().st_size
            limit_file_size(broker.pid, written + 500)
            with monkeypatch.context() as patch:
                patch.setattr(client_cluster, "RETRY_ATTEMPTS", 2)  # the disk stays full
                for _ in range(3):
                    with pytest.raises(StorageError, match="File too large"):
                        send(producer, "events", values[5])
            assert segment.stat().st_size == written
            assert read_all(cluster, "events") == values[:5]
            limit_file_size(broker.pid, resource.RLIM_INFINITY)
            for number in range(5, 10):
                assert send(producer, "events", values[number]) == number
            assert read_all(cluster, "events") == values
        broker.kill()
        broker.start()
        with Cluster(broker.bootstrap) as cluster:
            assert read_all(cluster, "events") == values
        assert "truncated" not in broker.read_log()
        assert "offline" not in broker.read_log()
