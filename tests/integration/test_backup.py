"""The folder of a broker is copied while it is used, as docs/deploy.md says, and served elsewhere.

That of a table is copied in test_warehouse_load.py.
"""

import shutil
import threading

from millrace.client import Cluster, Groups, SimpleConsumer, SyncProducer
from millrace.client.groups import GroupOffset
from millrace.client.log_check import check_topics
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.backup_commands import backup_broker

SETTINGS = {"log.segment.bytes": "20000", "offsets.topic.num.partitions": "1"}
TOPIC = "events"
BEFORE = 500


class Producing:
    """Sends numbered records one by one during the `with` block, and commits offsets of the group `g` now and then."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.acknowledged = 0
        self._is_over = threading.Event()
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        assert self._has_begun.wait(300)
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    @property
    def is_alive(self):
        return self._thread.is_alive()

    def _run(self):
        with Cluster(self.bootstrap) as cluster:
            producer, groups = SyncProducer(cluster), Groups(cluster)
            while not self._is_over.is_set():
                producer.send(TOPIC, 0, [NewRecord(value(self.acknowledged))])
                self.acknowledged += 1
                if self.acknowledged % 50 == 0:
                    groups.commit("g", {(TOPIC, 0): GroupOffset(self.acknowledged, "")})
                if self.acknowledged >= BEFORE:
                    self._has_begun.set()


def value(number):
    return b"%d " % number + b"x" * 200


def read(bootstrap):
    """Returns every value of the topic and the offset of the group; checks each partition as `millrace verify` does."""
    with Cluster(bootstrap) as cluster:
        assert [one.findings for one in check_topics(cluster, ()) if one.findings] == []
        consumer, position, values = SimpleConsumer(cluster), 0, []
        while position < consumer.latest(TOPIC, 0):
            records = list(consumer.fetch(TOPIC, 0, position).messages(position))
            values += [one.value for one in records]
            position = records[-1].offset + 1
        return values, Groups(cluster).offsets("g")[TOPIC, 0].offset


def copied_while_records_come(producing, data_dir, copy):
    """Copies until a record is acknowledged during the copy; returns how many were acknowledged before that copy."""
    while True:
        before = producing.acknowledged
        backup_broker(data_dir, copy)
        if producing.acknowledged > before:
            return before
        assert producing.is_alive
        shutil.rmtree(copy)


def test_what_was_acknowledged_before_a_copy_is_in_it(tmp_path):
    copy = tmp_path / "copy"
    with BrokerProcess(tmp_path / "data", properties=SETTINGS) as broker, Producing(broker.bootstrap) as producing:
        with Cluster(broker.bootstrap) as cluster:
            SyncProducer(cluster).send("_own", 0, [NewRecord(b"one")])
        before = copied_while_records_come(producing, broker.data_dir, copy)
    assert not (copy / "recovery-point-offset-checkpoint").exists()
    with BrokerProcess(copy, properties=SETTINGS) as restored:
        values, committed = read(restored.bootstrap)
        with Cluster(restored.bootstrap) as cluster:
            assert SimpleConsumer(cluster).latest("_own", 0) == 1
    assert values == [value(number) for number in range(len(values))]
    assert before <= len(values)
    assert BEFORE <= committed <= len(values)


def test_a_stopped_broker_is_copied_whole_and_starts_without_recovery(tmp_path):
    with BrokerProcess(tmp_path / "data", properties=SETTINGS) as broker:
        with Producing(broker.bootstrap) as producing:
            pass
        broker.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with BrokerProcess(tmp_path / "copy", properties=SETTINGS) as restored:
        values, _ = read(restored.bootstrap)
        assert len(values) == producing.acknowledged
        assert "recover" not in restored.read_log()
