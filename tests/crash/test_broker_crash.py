"""The broker killed for real: what it acknowledged is there afterwards, what was torn is cut and said."""

import json
import random
import re
import subprocess
import sys
import threading

import pytest

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.errors import MillraceError
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace.testing.broker import BrokerProcess

SYNC_EVERY_MESSAGE = {"log.flush.interval.messages": "1"}


def read_all(bootstrap, topic):
    """Every record of partition 0, in order."""
    with Cluster(bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        offset, end, records = consumer.earliest(topic, 0), consumer.latest(topic, 0), []
        while offset < end:
            batch = list(decode_records(consumer.fetch(topic, 0, offset).records))
            records += [record for record in batch if record.offset >= offset]
            offset = records[-1].offset + 1
    return records


class AcknowledgedProducer(threading.Thread):
    """Produces numbered records until told to stop; a failed send is never repeated."""

    def __init__(self, bootstrap):
        super().__init__()
        self.bootstrap, self.stopping = bootstrap, threading.Event()
        self.acknowledged, self.sent = {}, 0
        self.progress = threading.Condition()

    def run(self):
        while not self.stopping.is_set():
            try:
                with Cluster(self.bootstrap, timeout_s=5) as cluster:
                    self.produce(SyncProducer(cluster))
            except MillraceError:
                continue

    def produce(self, producer):
        while not self.stopping.is_set():
            numbers = range(self.sent, self.sent + random.randint(1, 20))
            self.sent = numbers.stop
            first = producer.send("events", 0, [NewRecord(b"%d" % number) for number in numbers])
            with self.progress:
                self.acknowledged |= {number: first + step for step, number in enumerate(numbers)}
                self.progress.notify()

    def await_acknowledged(self, more):
        with self.progress:
            wanted = len(self.acknowledged) + more
            assert self.progress.wait_for(lambda: len(self.acknowledged) >= wanted, timeout=240)


@pytest.mark.soak(rounds=8, minutes=4)
def test_no_acknowledged_record_is_lost_by_kill_9(tmp_path, rounds, record_property):
    with BrokerProcess(tmp_path, properties=SYNC_EVERY_MESSAGE) as broker:
        producer = AcknowledgedProducer(broker.bootstrap)
        producer.start()
        kills = 0
        try:
            for _ in rounds:
                producer.await_acknowledged(more=random.randint(1, 200))
                broker.kill()
                broker.start()
                kills += 1
        finally:
            producer.stopping.set()
            producer.join()
        records = read_all(broker.bootstrap, "events")
    values = [int(record.value) for record in records]
    assert [record.offset for record in records] == list(range(len(records)))
    assert len(set(values)) == len(values), "a record is there twice"
    for number, offset in producer.acknowledged.items():
        assert values[offset] == number
    assert len(producer.acknowledged) > kills
    record_property("kills", kills)
    record_property("acknowledged", len(producer.acknowledged))


@pytest.mark.parametrize(
    ("tail", "what"),
    [
        (b"\xde\xad\xbe\xef" * 300, "garbage"),
        (encode_batch([NewRecord(b"torn")] * 50, base_offset=3)[:-40], "a batch cut short"),
        (bytes(4096), "zeros, as a file system may leave"),
        (encode_batch([NewRecord(b"flipped")], base_offset=3)[:-1] + b"\xff", "a batch with a wrong CRC"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_tail_is_cut_to_the_last_valid_batch(tmp_path, tail, what):
    with BrokerProcess(tmp_path) as broker:
        with Cluster(broker.bootstrap) as cluster:
            SyncProducer(cluster).send("events", 0, [NewRecord(b"%d" % n) for n in range(3)])
        broker.kill()
        segment = next(tmp_path.glob("events-0/*.log"))
        whole_bytes = segment.stat().st_size
        with segment.open("ab") as file:
            file.write(tail)
        broker.start()
        assert segment.stat().st_size == whole_bytes, what
        assert re.search(rf"\b{len(tail)} bytes\b", broker.read_log()), broker.read_log()
        with Cluster(broker.bootstrap) as cluster:
            assert SyncProducer(cluster).send("events", 0, [NewRecord(b"3")]) == 3
        assert [record.value for record in read_all(broker.bootstrap, "events")] == [b"0", b"1", b"2", b"3"]


def refused(*folders):
    """Start a second broker on folders that are in use; it must not start."""
    data = [part for folder in folders for part in ("--data", str(folder))]
    command = [sys.executable, "-m", "millrace_broker", "--standalone", "--listen", "127.0.0.1:0", *data]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "another broker holds this folder" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("more", [(), ("second",)], ids=["one folder", "two folders"])
def test_a_refused_broker_spoils_nothing_of_a_live_one(tmp_path, more):
    folders = [tmp_path / name for name in ("first", *more)]
    with BrokerProcess(folders[0], more_data_dirs=folders[1:], properties=SYNC_EVERY_MESSAGE) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 2)
            for partition in (0, 1):
                SyncProducer(cluster).send("events", partition, [NewRecord(b"%d" % n) for n in range(20)])
                Admin(cluster).delete_records("events", partition, 5)
        refused(*folders)
        refused(*folders[1:], tmp_path / "fresh", folders[0])
        broker.kill()
        segments = list(tmp_path.glob("*/events-*/*.log"))
        assert len(segments) == 2
        for segment in segments:
            with segment.open("ab") as file:
                file.write(b"\xde\xad\xbe\xef" * 300)
        broker.start()
        assert broker.read_log().count("truncated 1200 bytes") == 2
        with Cluster(broker.bootstrap) as cluster:
            consumer = SimpleConsumer(cluster)
            ends = [(consumer.earliest("events", each), consumer.latest("events", each)) for each in (0, 1)]
    assert ends == [(5, 20), (5, 20)]


def test_a_clean_stop_keeps_everything_and_needs_no_recovery(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        with Cluster(broker.bootstrap) as cluster:
            SyncProducer(cluster).send("events", 0, [NewRecord(b"kept", b"key", 77, (("h", b"v"),))])
        assert broker.stop() == 0
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        broker.start()
        (record,) = read_all(broker.bootstrap, "events")
        assert record == (0, 77, b"key", b"kept", (("h", b"v"),))
        assert "truncated" not in broker.read_log()


def test_a_topic_is_created_beside_the_log_that_a_crash_has_left_of_a_deleted_one(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        with Cluster(broker.bootstrap) as cluster:
            SyncProducer(cluster).send("events", 0, [NewRecord(b"old")] * 3)
        broker.kill()
        metadata = json.loads((tmp_path / "metadata.json").read_text())
        assert metadata["topics"].pop("events")
        (tmp_path / "metadata.json").write_text(json.dumps(metadata))  # deleted, as the crash came before the log went
        broker.start()
        with Cluster(broker.bootstrap) as cluster:
            SyncProducer(cluster).send("events", 0, [NewRecord(b"new")])
        assert [one.value for one in read_all(broker.bootstrap, "events")] == [b"new"]
        (kept,) = tmp_path.glob("events-0.*-stray/*.log")
        assert kept.read_bytes().count(b"old") == 3
        broker.restart()
        assert [one.value for one in read_all(broker.bootstrap, "events")] == [b"new"]
