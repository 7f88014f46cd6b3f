"""A partition's log is moved between a broker's data folders (KIP-113), while clients write to it and read it."""

import threading
from collections import Counter
from contextlib import contextmanager

import confluent_kafka
import kafka
import kafka.admin
import pytest
from kafka.errors import for_code
from kafka.structs import TopicPartitionReplica

from millrace.client import Admin, Cluster, SyncProducer
from millrace.errors import ErrorCode
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_ops.cli.app import app
from millrace_support.command_runner import CommandRunner
from millrace_support.raw import RawConnection
from millrace_support.waiting import until

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class TwoFolders:
    """A broker, its folders, and what it says of them."""

    def __init__(self, parent, **properties):
        self.paths = [parent / "one", parent / "two"]
        named = {name.replace("_", "."): value for name, value in properties.items()}
        settings = {"log.segment.bytes": "400000", "log.segment.delete.delay.ms": "0"} | named
        self.broker = BrokerProcess(self.paths[0], more_data_dirs=self.paths[1:], properties=settings)

    def place(self, path, topic, partition=0):
        fields = {"dirs": [{"path": str(path), "topics": [{"name": topic, "partitions": [partition]}]}]}
        with RawConnection(self.broker.bootstrap) as connection:
            [answer] = connection.request(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, fields).results
        return ErrorCode(answer.partitions[0].error_code)

    def described(self, topic):
        """(folder's name, is future, offset lag, bytes) of each copy of partition 0."""
        with RawConnection(self.broker.bootstrap) as connection:
            answer = connection.request(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        return [
            (directory.log_dir.rsplit("/", 1)[1], one.is_future_key, one.offset_lag, one.partition_size)
            for directory in answer.results
            for each in directory.topics
            if each.name == topic
            for one in each.partitions
            if one.partition_index == 0
        ]

    def where(self, topic):
        return [name for name, is_future, _, _ in self.described(topic) if not is_future]

    def other(self, topic):
        [name] = self.where(topic)
        return next(path for path in self.paths if path.name != name)

    def folders(self, topic):
        names = [path for parent in self.paths for path in parent.iterdir() if path.name.startswith(f"{topic}-0")]
        return sorted(f"{path.parent.name}/{path.name}" for path in names if not path.name.endswith("-delete"))


@contextmanager
def running(parent, **properties):
    folders = TwoFolders(parent, **properties)
    with folders.broker:
        yield folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    with running(tmp_path_factory.mktemp("fast")) as found:
        yield found


@pytest.fixture
def slow(tmp_path):
    with running(tmp_path, **{RATE: "20000"}) as found:
        yield found


def fill(folders, topic, count=3000):
    with Cluster(folders.broker.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1)
        producer = SyncProducer(cluster)
        for start in range(0, count, 100):
            producer.send(topic, 0, [NewRecord(b"%06d" % (start + n) * 300) for n in range(100)])


def read_all(folders, topic, count):
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=folders.broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    values = [record.value[:6] for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


def test_records_are_there_once_while_a_log_is_moved_to_and_fro(folders):
    """An idempotent producer and a consumer of librdkafka go on; kafka-python moves the log to and fro."""
    topic = "busy"
    fill(folders, topic, 0)
    bootstrap = {"bootstrap.servers": folders.broker.bootstrap}
    producer = confluent_kafka.Producer({**bootstrap, "enable.idempotence": True, "linger.ms": 1})
    consumer = confluent_kafka.Consumer({**bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    moved, sent, errors, seen = threading.Event(), [], [], []

    def consume():
        seen.extend(consumer.consume(10_000, 0.05))

    def seen_in(target):
        until(lambda: consume() or folders.where(topic) == [target.name])
        already = len(seen)
        until(lambda: consume() or len(seen) > already)

    def produce():
        while not moved.is_set():
            for _ in range(10):
                value = b"%d" % len(sent)
                sent.append(value)
                producer.produce(topic, value, on_delivery=lambda error, _: error and errors.append(error))
            producer.flush(60)

    thread = threading.Thread(target=produce)
    thread.start()
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=folders.broker.bootstrap)
    try:
        for target in (*folders.paths, *folders.paths):
            [answer] = admin.alter_replica_log_dirs({TopicPartitionReplica(topic, 0, 1): str(target)}).values()
            assert answer is for_code(ErrorCode.NONE)
            seen_in(target)
    finally:
        moved.set()
        thread.join()
        admin.close()
    until(lambda: consume() or len(seen) >= len(sent))
    consumer.close()
    assert errors == []
    assert [message.error() for message in seen if message.error()] == []
    assert Counter(message.value() for message in seen) == Counter(sent)
    assert [message.offset() for message in seen] == list(range(len(sent)))
    assert folders.folders(topic) == [f"{folders.where(topic)[0]}/{topic}-0"]


def test_a_moved_log_survives_a_kill_and_a_check(tmp_path):
    with running(tmp_path) as folders:
        fill(folders, "t")
        target = folders.other("t")
        assert folders.place(target, "t") == ErrorCode.NONE
        until(lambda: folders.where("t") == [target.name])
        folders.broker.kill()
        assert folders.folders("t") == [f"{target.name}/t-0"]
        folders.broker.start()
        assert read_all(folders, "t", 3000) == [b"%06d" % n for n in range(3000)]
        folders.broker.stop()
        checked = CommandRunner().invoke(app, ["verify", str(target)])
        assert checked.exit_code == 0, checked.output


def test_a_move_under_way_is_shown_and_dropped_when_asked_back(slow):
    fill(slow, "t")
    [(home, _, _, size)] = slow.described("t")
    target = slow.other("t")
    assert slow.place(target, "t") == ErrorCode.NONE
    assert slow.place(target, "t") == ErrorCode.NONE  # it is on its way there
    until(lambda: any(is_future and size for _, is_future, _, size in slow.described("t")))
    shown = {name: (is_future, lag) for name, is_future, lag, _ in slow.described("t")}
    assert shown[home] == (False, 0)
    assert shown[target.name][0]
    assert 0 < shown[target.name][1] <= 3000
    assert slow.place(slow.broker.data_dir.parent / home, "t") == ErrorCode.NONE
    assert slow.described("t") == [(home, False, 0, size)]
    assert slow.folders("t") == [f"{home}/t-0"]
    assert read_all(slow, "t", 3000)[-1] == b"002999"


@pytest.mark.broker_errors(r"is offline: .*Not a directory|was to be moved to")
def test_a_folder_that_takes_no_copy_is_told(tmp_path):
    """The disk of the target has gone: the answer is Kafka's, and the log is served where it was."""
    with running(tmp_path) as folders:
        fill(folders, "t", 100)
        target = folders.other("t")
        target.rename(tmp_path / "gone")
        target.write_bytes(b"no folder")
        assert folders.place(target, "t") == ErrorCode.KAFKA_STORAGE_ERROR
        assert read_all(folders, "t", 100)[-1] == b"000099"


def test_another_rate_lets_a_move_end(slow):
    fill(slow, "t", 1500)
    target = slow.other("t")
    assert slow.place(target, "t") == ErrorCode.NONE
    set_rate(slow, 1_000_000_000)
    until(lambda: slow.where("t") == [target.name])


def set_rate(folders, bytes_per_second):
    change = {"resource_type": 4, "resource_name": "1"}
    setting = {"name": RATE, "config_operation": 0, "value": str(bytes_per_second)}
    with RawConnection(folders.broker.bootstrap) as connection:
        fields = {"resources": [{**change, "configs": [setting]}], "validate_only": False}
        [answer] = connection.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
        assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_move_goes_on_after_the_broker_has_ended(slow, end):
    fill(slow, "t")
    target = slow.other("t")
    assert slow.place(target, "t") == ErrorCode.NONE
    [home] = slow.where("t")
    until(lambda: any(is_future and size for _, is_future, _, size in slow.described("t")))
    getattr(slow.broker, end)()
    slow.broker.start()
    moving = [(name, is_future) for name, is_future, _, _ in slow.described("t")]
    assert sorted(moving) == sorted([(home, False), (target.name, True)])
    set_rate(slow, 1_000_000_000)
    until(lambda: slow.where("t") == [target.name])
    until(lambda: slow.folders("t") == [f"{target.name}/t-0"])
    assert read_all(slow, "t", 3000)[-1] == b"002999"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_dropped_move_does_not_come_back(slow, end):
    fill(slow, "t")
    [home] = [path for path in slow.paths if path.name in slow.where("t")]
    for path in (slow.other("t"), home):
        assert slow.place(path, "t") == ErrorCode.NONE
    getattr(slow.broker, end)()
    slow.broker.start()
    assert [(name, is_future) for name, is_future, _, _ in slow.described("t")] == [(home.name, False)]


def test_a_topic_is_deleted_while_it_is_moved(slow):
    fill(slow, "t")
    assert slow.place(slow.other("t"), "t") == ErrorCode.NONE
    with Cluster(slow.broker.bootstrap) as cluster:
        Admin(cluster).delete_topic("t")
    until(lambda: slow.described("t") == [])
    until(lambda: slow.folders("t") == [])


def test_a_topic_is_made_where_it_was_wished_for(folders):
    for topic, path in zip(("here", "there", "here-too"), (0, 1, 0), strict=True):
        assert folders.place(folders.paths[path], topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        fill(folders, topic, 0)
        assert folders.where(topic) == [folders.paths[path].name]


def test_what_cannot_be_moved_is_refused(folders):
    fill(folders, "refused", 0)
    assert folders.place("/no/such", "refused") == ErrorCode.LOG_DIR_NOT_FOUND
    assert folders.place(folders.paths[0], "x" * 220) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert folders.place(folders.paths[0], "refused", partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
