"""What thousands of logs cost is counted in hundreds: syncs a partition, and who is looked at when one changes."""

import uuid
from collections import Counter

import pytest

from millrace.clock import SystemClock
from millrace.errors import InvalidConfigError, StorageError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import LogManager, NewLog, TopicPartition

COUNT = 300
TOPIC_ID = uuid.UUID(int=42)
BATCH = encode_batch([NewRecord(b"value", timestamp_ms=1000)])


class CountingFileSystem(OsFileSystem):
    """Counts syncs, by what was asked for."""

    def __init__(self):
        self.syncs = Counter()

    def fsync(self, fd):
        self.syncs["fsync"] += 1
        super().fsync(fd)

    def fsync_dir(self, path):
        self.syncs["fsync_dir"] += 1
        super().fsync_dir(path)

    def sync_tree(self, path):
        self.syncs["sync_tree"] += 1
        super().sync_tree(path)


@pytest.fixture
def fs():
    return CountingFileSystem()


def new_manager(fs, directory, dirs=1, properties=None):
    paths = [str(directory / str(number)) for number in range(dirs)]
    logs = LogManager(fs, SystemClock(), paths, properties or {}, "cluster", 1)
    logs.start()
    fs.syncs.clear()
    return logs


def wanted(count=COUNT, config=None):
    config = config or {}
    return [NewLog(TopicPartition("many", index), TOPIC_ID, config) for index in range(count)]


def test_many_logs_are_made_for_two_syncs_of_each_data_folder(fs, tmp_path):
    logs = new_manager(fs, tmp_path, dirs=2)
    logs.create_all(wanted())
    assert fs.syncs == {"sync_tree": 4}
    counts = Counter(log.directory.rsplit("/", 2)[-2] for log in logs.logs().values())
    assert counts == {"0": COUNT // 2, "1": COUNT // 2}
    assert {logs.topic_id(each.topic_partition) for each in wanted()} == {TOPIC_ID}
    assert set(logs.configured()) == set(logs.logs())
    made = dict(logs.logs())
    logs.create_all(wanted())
    assert logs.logs() == made
    assert len({id(log.config) for log in made.values()}) == 1
    logs.close()


def test_a_few_logs_are_synced_by_themselves(fs, tmp_path):
    logs = new_manager(fs, tmp_path)
    logs.create_all(wanted(3))
    assert fs.syncs == {"fsync": 3, "fsync_dir": 4}
    logs.close()


def test_logs_without_records_have_nothing_to_sync_when_they_close(fs, tmp_path):
    logs = new_manager(fs, tmp_path)
    logs.create_all(wanted())
    fs.syncs.clear()
    logs.close()
    assert fs.syncs["fsync"] < 10
    again = new_manager(fs, tmp_path)
    assert len(again.logs()) == COUNT
    assert again.get(TopicPartition("many", 7)).append(BATCH, leader_epoch=0).first_offset == 0
    again.close()


def test_many_logs_are_deleted_for_one_sync_of_their_data_folder(fs, tmp_path):
    logs = new_manager(fs, tmp_path, properties={"log.segment.delete.delay.ms": "0"})
    logs.create_all(wanted())
    logs.create(TopicPartition("kept", 0), TOPIC_ID, {})
    fs.syncs.clear()
    logs.delete(*(each.topic_partition for each in wanted()))
    assert fs.syncs == {"fsync_dir": 1}
    assert list(logs.logs()) == [TopicPartition("kept", 0)]
    assert logs.remove_deleted() == COUNT
    logs.close()


def test_a_log_that_cannot_be_made_is_left_out_and_creating_it_says_why(fs, tmp_path):
    logs = new_manager(fs, tmp_path)
    (tmp_path / "0" / "many-1").write_text("a file where a folder should be")
    logs.create_all(wanted(2))
    assert logs.logs() == {}
    with pytest.raises(StorageError, match="many-1"):
        logs.create(*wanted(2)[1])
    assert logs.create(*wanted(2)[0]).log_end_offset == 0
    bad = NewLog(TopicPartition("bad", 0), TOPIC_ID, {"segment.bytes": "much"})
    logs.create_all([bad])
    with pytest.raises(InvalidConfigError):
        logs.create(*bad)
    logs.close()


def test_an_operation_is_told_which_of_its_partitions_has_grown(fs, tmp_path):
    class Waiting:
        def __init__(self):
            self.looked_at = []

        def is_ready(self, key):
            self.looked_at.append(key.partition)
            return len(self.looked_at) == 3

        def complete(self):
            """Has nobody to answer."""

        def expire(self):
            raise AssertionError("nothing expires here")

    class Timer:
        def cancel(self):
            pass

    logs = new_manager(fs, tmp_path)
    purgatory = Purgatory(lambda _delay, _callback: Timer())
    replicas = ReplicaManager(logs, purgatory, IsrTables(1, SystemClock()))
    replicas.logs.create_all(wanted())
    for each in wanted():
        replicas.lead(each.topic_partition, each.topic_id, each.topic_config, Leadership.alone(1))
    waiting = Waiting()
    purgatory.hold(waiting, [each.topic_partition for each in wanted()], 1000)
    for index in (7, 7, 250, 9):
        replicas.append(TopicPartition("many", index), BATCH)
    assert waiting.looked_at == [7, 7, 250]
    assert len(purgatory) == 0
    logs.close()
