"""What a broker leaves behind when it stops: high watermarks and snapshots of its producers."""

import time

from millrace.client.cluster import Cluster
from millrace.client.sync_producer import SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_broker.storage.producers.producer_state_manager import decode_snapshot


def test_a_stopped_broker_leaves_its_high_watermarks_and_snapshots(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        with Cluster(broker.bootstrap) as cluster:
            SyncProducer(cluster).send("events", 0, [NewRecord(b"1"), NewRecord(b"2")])
        assert broker.stop() == 0
        assert (tmp_path / "replication-offset-checkpoint").read_text().splitlines() == ["0", "1", "events 0 2"]
        (snapshot,) = tmp_path.glob("events-0/*.snapshot")
        assert snapshot.name == f"{2:020d}.snapshot"
        assert decode_snapshot(snapshot.read_bytes()) == []


def test_high_watermarks_are_written_while_the_broker_runs(tmp_path):
    settings = {"replica.high.watermark.checkpoint.interval.ms": "20"}
    with BrokerProcess(tmp_path, properties=settings) as broker, Cluster(broker.bootstrap) as cluster:
        assert broker.admin_url
        SyncProducer(cluster).send("events", 0, [NewRecord(b"1")])
        checkpoint = tmp_path / "replication-offset-checkpoint"
        while not (checkpoint.exists() and "events 0 1" in checkpoint.read_text()):
            time.sleep(0.01)
