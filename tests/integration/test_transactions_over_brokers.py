"""Transactions over two brokers: partitions, groups and coordinators on either, and kills before the markers.

Partition 0 of every topic is led by broker 1, partition 1 by broker 2.
"""

import json
import signal
from contextlib import ExitStack, contextmanager
from uuid import uuid4

import confluent_kafka
import pytest

from millrace.errors import ErrorCode, SetupError
from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_broker.cluster.coordinator_topic import partition_of
from millrace_support.await_brokers import await_brokers
from millrace_support.raw import RawConnection
from millrace_support.read_committed import committed_records
from millrace_support.zookeeper_sessions import end_session

PROPERTIES = {"group.initial.rebalance.delay.ms": "0"}
RETRIABLE = (
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)  # fmt: skip
WAIT_MS = 20_000
OLD, GENERIC, BUMPING = 9, 11, 12  # versions of Produce: before KIP-890, with its errors, with its epochs


class TwoBrokers:
    """Two brokers of one cluster, and a connection to each, by their ids."""

    def __init__(self, folder, chroot):
        self.stack = ExitStack()
        self.zookeeper = chroot
        self.brokers = {
            number: self.stack.enter_context(
                BrokerProcess(folder / str(number), zookeeper=chroot, broker_id=number, properties=PROPERTIES)
            )
            for number in (1, 2)
        }
        await_brokers({1, 2}, *self.brokers.values())
        self.raws = {}
        for number in (1, 2):
            self.connect(number)
        self.create(TRANSACTION_TOPIC, OFFSETS_TOPIC)

    @property
    def bootstrap(self):
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def connect(self, number):
        self.raws[number] = self.stack.enter_context(RawConnection(self.brokers[number].bootstrap))

    def kill(self, number):
        """Kill a broker, and end its session: it can be registered again at once."""
        self.brokers[number].kill()
        end_session(self.zookeeper, number)

    def create(self, *names):
        """Create topics of one partition on each broker, and wait until both know them."""
        topics = [
            {
                "name": name, "num_partitions": -1, "replication_factor": -1, "configs": [],
                "assignments": [{"partition_index": index, "broker_ids": [index + 1]} for index in (0, 1)],
            }
            for name in names
        ]  # fmt: skip
        fields = {"topics": topics, "timeout": 60_000, "validate_only": False}
        assert {one.error_code for one in self.raws[1].request(ApiKey.CREATE_TOPICS, 5, fields).topics} == {0}
        asked = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        for raw in self.raws.values():
            while any(one.error_code for one in raw.request(ApiKey.METADATA, 4, asked).topics):
                pass

    def fetch(self, topic, index, offset, max_wait=WAIT_MS):
        wanted = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        fields = {
            "replica_id": -1, "max_wait": max_wait, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1,
            "topics": [{"topic": topic, "partitions": [wanted]}], "forgotten_topics_data": [],
        }  # fmt: skip
        (one,) = self.raws[index + 1].request(ApiKey.FETCH, 11, fields).responses[0].partitions
        assert one.error_code == 0
        return one

    def await_markers(self, topic):
        """Wait until no transaction is open in the topic."""
        for index in (0, 1):
            while (one := self.fetch(topic, index, 0, 0)).last_stable_offset < one.high_watermark:
                pass

    def committed(self, topic, index, count):
        """Returns the committed records of a partition, once there are `count` and all up to its end are read."""
        found, offset, end = [], 0, self.fetch(topic, index, 0, 0).last_stable_offset
        while len(found) < count or offset < end:
            one = self.fetch(topic, index, offset)
            aborted = [(each.producer_id, each.first_offset) for each in one.aborted_transactions or ()]
            found += [int(record.value) for record in committed_records(bytes(one.records or b""), aborted)]
            offset = one.last_stable_offset
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, zookeeper):
    both = TwoBrokers(tmp_path_factory.mktemp("brokers"), f"{zookeeper.address}/{uuid4().hex}")
    with both.stack:
        yield both


@contextmanager
def fresh_cluster(tmp_path, zookeeper):
    both = TwoBrokers(tmp_path, f"{zookeeper.address}/{uuid4().hex}")
    with both.stack:
        both.create("events")
        yield both


def id_at(broker_id, name="t"):
    """Returns an id that begins with the name; the broker coordinates it as a transactional id and as a group."""
    return next(each for each in (f"{name}{number}" for number in range(100)) if partition_of(each, 2) == broker_id - 1)


class Client:
    """A transactional producer whose transactions one broker coordinates."""

    def __init__(self, cluster, broker_id, name):
        self.cluster = cluster
        self.home = broker_id
        self.id = id_at(broker_id, name)
        self.sequences = {}
        self.begin()

    def begin(self):
        fields = {"transactional_id": self.id, "transaction_timeout": 60_000}
        answer = self.retried(lambda: self.raw.request(ApiKey.INIT_PRODUCER_ID, 4, fields), lambda one: one.error_code)
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    @property
    def raw(self):
        return self.cluster.raws[self.home]

    @property
    def named(self):
        return {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    @staticmethod
    def retried(ask, code_of):
        while code_of(answer := ask()) in RETRIABLE:
            pass
        return answer

    def add(self, topic, index):
        fields = {
            **{f"v3_and_below_{key}": value for key, value in self.named.items()},
            "v3_and_below_topics": [{"name": topic, "partitions": [index]}],
        }

        def ask():
            answer = self.raw.request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, fields)
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        return self.retried(ask, int)

    def produce(self, topic, index, value, version, *, epoch=None):
        key = topic, index
        sequence = self.sequences.get(key, 0)
        producer = BatchProducer(self.producer_id, self.epoch if epoch is None else epoch, sequence)
        batch = encode_batch([NewRecord(b"%d" % value)], producer=producer, flags=TRANSACTIONAL_FLAG)
        data = [{"name": topic, "partition_data": [{"index": index, "records": batch}]}]
        fields = {"transactional_id": self.id, "acks": -1, "timeout": 5000, "topic_data": data}

        def ask():
            answer = self.cluster.raws[index + 1].request(ApiKey.PRODUCE, version, fields)
            return answer.responses[0].partition_responses[0].error_code

        error = self.retried(ask, int)
        self.sequences[key] = sequence + (not error)
        return error

    def end(self, *, commit=True, version=3, epoch=None):
        """Ends the transaction, and returns the error code."""
        fields = {**self.named, "committed": commit, **({} if epoch is None else {"producer_epoch": epoch})}
        answer = self.retried(lambda: self.raw.request(ApiKey.END_TXN, version, fields), lambda one: one.error_code)
        if version >= 5 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer.error_code

    def commit_offset(self, group, offset, version):
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        fields = {**self.named, "group_id": group, "topics": [{"name": "events", "partitions": partitions}]}
        coordinator = self.cluster.raws[partition_of(group, 2) + 1]

        def ask():
            return coordinator.request(ApiKey.TXN_OFFSET_COMMIT, version, fields).topics[0].partitions[0].error_code

        return self.retried(ask, int)

    def add_offsets(self, group):
        fields = {**self.named, "group_id": group}
        return self.retried(lambda: self.raw.request(ApiKey.ADD_OFFSETS_TO_TXN, 3, fields).error_code, int)


def stable_offset(cluster, group):
    """Returns the committed offset of a group, once no open transaction is about to change it."""
    fields = {"groups": [{"group_id": group, "topics": [{"name": "events", "partition_indexes": [0]}]}],
              "require_stable": True}  # fmt: skip
    while True:
        answer = cluster.raws[partition_of(group, 2) + 1].request(ApiKey.OFFSET_FETCH, 8, fields).groups[0]
        if not answer.error_code and answer.topics[0].partitions[0].error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            return answer.topics[0].partitions[0].committed_offset


@pytest.fixture(scope="module")
def events(cluster):
    cluster.create("events")
    return cluster


@pytest.mark.parametrize("home", [1, 2])
def test_one_transaction_writes_to_both_brokers(cluster, home):
    """A stock client writes; readers of committed records see all of the transaction, or nothing."""
    topic = f"stock-{home}"
    cluster.create(topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": id_at(home, topic), "linger.ms": 0}
    )
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"%d" % number, partition=partition)
        producer.commit_transaction(60) if number % 2 else producer.abort_transaction(60)
    for partition in (0, 1):
        assert cluster.committed(topic, partition, 3) == [1, 3, 5]


@pytest.mark.parametrize("home", [1, 2])
@pytest.mark.parametrize(("version", "missing"), [
    (OLD, ErrorCode.INVALID_TXN_STATE), (GENERIC, ErrorCode.TRANSACTION_ABORTABLE),
])  # fmt: skip
def test_a_partition_that_was_not_added_takes_no_records(cluster, home, version, missing):
    topic = f"verified-{home}-{version}"
    cluster.create(topic)
    client = Client(cluster, home, topic)
    for partition in (0, 1):
        assert client.produce(topic, partition, 1, version) == missing
        assert client.add(topic, partition) == 0
        assert client.produce(topic, partition, 2, version) == 0
        assert client.produce(topic, partition, 3, version) == 0
    assert client.end() == 0
    for partition in (0, 1):
        assert cluster.committed(topic, partition, 2) == [2, 3]


@pytest.mark.parametrize("home", [1, 2])
def test_the_leader_adds_its_partition_to_the_transaction(cluster, home):
    """A batch, or an end, that comes late belongs to no later transaction (KIP-890)."""
    topic = f"implicit-{home}"
    cluster.create(topic)
    client = Client(cluster, home, topic)
    for number in range(4):
        for partition in (0, 1):
            assert client.produce(topic, partition, number, BUMPING) == 0
        before = client.epoch
        assert client.end(commit=number % 2, version=5) == 0
        assert client.epoch == before + 1
        cluster.await_markers(topic)
        for partition in (0, 1):
            assert client.produce(topic, partition, 9, BUMPING, epoch=before) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.produce(topic, 0, 4, BUMPING) == 0
    late = Client.__new__(Client)
    late.__dict__.update(client.__dict__)
    assert late.end(commit=True, version=5, epoch=client.epoch - 1) == ErrorCode.PRODUCER_FENCED
    assert client.end(commit=False, version=5) == 0
    for partition in (0, 1):
        assert cluster.committed(topic, partition, 2) == [1, 3]


@pytest.mark.parametrize("home", [1, 2])
def test_batches_that_wait_for_the_coordinator_keep_their_order(cluster, home):
    """Later batches do not overtake, even if their partition is in the transaction already."""
    topic, beside, count = f"ordered-{home}", f"beside-{home}", 30
    cluster.create(topic, beside)
    client = Client(cluster, home, topic)
    assert client.produce(topic, 1, 0, BUMPING) == 0
    producer = BatchProducer(client.producer_id, client.epoch, 0)
    raw = cluster.raws[2]
    for number in range(1, count):
        batch = encode_batch(
            [NewRecord(b"%d" % number)], producer=producer._replace(base_sequence=number), flags=TRANSACTIONAL_FLAG
        )
        other = encode_batch(
            [NewRecord(b"x")], producer=producer._replace(base_sequence=number // 2), flags=TRANSACTIONAL_FLAG
        )
        data = [
            {"name": topic, "partition_data": [{"index": 1, "records": batch}]},
            {"name": beside, "partition_data": [{"index": 1, "records": other}]},
        ]
        fields = {"transactional_id": client.id, "acks": -1, "timeout": 5000, "topic_data": data[: 1 + number % 2]}
        raw.send(ApiKey.PRODUCE, BUMPING, encode(ApiKey.PRODUCE, BUMPING, Direction.REQUEST, fields))
    answers = [
        decode(ApiKey.PRODUCE, BUMPING, Direction.RESPONSE, raw.receive(ApiKey.PRODUCE, BUMPING))
        for _ in range(1, count)
    ]
    placed = [one.responses[0].partition_responses[0] for one in answers]
    assert [(one.error_code, one.base_offset) for one in placed] == [(0, number) for number in range(1, count)]
    assert client.end(version=5) == 0
    assert cluster.committed(topic, 1, count) == list(range(count))


@pytest.mark.parametrize("is_bumping", [False, True])
@pytest.mark.parametrize("home", [1, 2])
def test_offsets_of_a_group_that_another_broker_coordinates(events, home, is_bumping):
    for group_home in (1, 2):
        name = f"offsets-{home}-{group_home}-{is_bumping}"
        client, group = Client(events, home, name), id_at(group_home, name)
        for number in range(1, 5):
            if not is_bumping:
                assert client.commit_offset(group, 9, 3) == ErrorCode.INVALID_TXN_STATE
                assert client.add_offsets(group) == 0
            assert client.commit_offset(group, number, 5 if is_bumping else 3) == 0
            assert client.end(commit=number % 2, version=5 if is_bumping else 3) == 0
            assert stable_offset(events, group) == number - 1 + number % 2


def test_consume_transform_produce_over_both_brokers(cluster):
    """The group, the transaction and the partitions are each on another broker, by a stock client."""
    cluster.create("source", "copy")
    plain = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(20):
        plain.produce("source", b"%d" % number, partition=number % 2)
    plain.flush(60)
    settings = {
        "bootstrap.servers": cluster.bootstrap, "group.id": id_at(2, "copying"), "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "isolation.level": "read_committed",
    }  # fmt: skip
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": id_at(1, "copying"), "linger.ms": 0}
    )
    producer.init_transactions(60)
    for is_commit, count in ((False, 20), (True, 20)):
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(["source"])
        copied = 0
        while copied < count:
            messages = consumer.consume(5, timeout=10)
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce("copy", message.value(), partition=message.partition())
            copied += len(messages)
            ends = {message.partition(): message.offset() + 1 for message in messages}
            offsets = [confluent_kafka.TopicPartition("source", index, end) for index, end in ends.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
            producer.commit_transaction(60) if is_commit else producer.abort_transaction(60)
        consumer.close()
    for partition in (0, 1):
        assert cluster.committed("copy", partition, 10) == list(range(partition, 20, 2))


@pytest.fixture(scope="module")
def kafka_tools():
    try:
        return find_kafka("4.1")
    except SetupError as error:
        pytest.skip(str(error))


@pytest.mark.peers
@pytest.mark.parametrize("home", [1, 2])
def test_kafkas_own_copier_goes_over_both_brokers(cluster, kafka_tools, home):
    """Kafka's program for its system tests, which aborts at random; the leaders add their partitions (KIP-890)."""
    source, destination, name = f"java-in-{home}", f"java-out-{home}", f"java-{home}"
    cluster.create(source, destination)
    plain = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(60):
        plain.produce(source, b"%d" % number, partition=1)
    plain.flush(60)
    said = kafka_tools.run(
        "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", cluster.bootstrap,
        "--input-topic", source, "--input-partition", "1", "--output-topic", destination, "--max-messages", "60",
        "--consumer-group", id_at(3 - home, name), "--transaction-size", "10",
        "--transactional-id", id_at(home, name), "--enable-random-aborts", "--group-mode", "--use-group-metadata",
    )  # fmt: skip
    last = [json.loads(line) for line in said.splitlines() if line.startswith("{")][-1]
    assert (last["consumed"], last["remaining"]) == (60, 0), said
    cluster.await_markers(destination)
    copied = [number for partition in (0, 1) for number in cluster.committed(destination, partition, 0)]
    assert sorted(copied) == list(range(60))


def decide_without_markers(both):
    """A committed transaction of a coordinator on broker 1, whose marker broker 2 can't write."""
    client = Client(both, 1, "t")
    for partition in (0, 1):
        assert client.add("events", partition) == 0
        assert client.produce("events", partition, 7, OLD) == 0
    both.brokers[2].send_signal(signal.SIGSTOP)
    assert client.end() == 0
    both.kill(2)
    return client


def test_a_leader_that_dies_before_its_marker_gets_it_when_it_is_back(tmp_path, zookeeper):
    with fresh_cluster(tmp_path, zookeeper) as both:
        client = decide_without_markers(both)
        assert both.committed("events", 0, 1) == [7]
        both.brokers[2].start()
        both.connect(2)
        assert both.committed("events", 1, 1) == [7]
        assert client.add("events", 1) == 0


def test_a_coordinator_that_dies_after_its_decision_carries_it_out_when_it_is_back(tmp_path, zookeeper):
    with fresh_cluster(tmp_path, zookeeper) as both:
        client = decide_without_markers(both)
        both.kill(1)
        both.brokers[2].start()
        both.brokers[1].start()
        for number in (1, 2):
            both.connect(number)
        for partition in (0, 1):
            assert both.committed("events", partition, 1) == [7]
        client.begin()
        assert client.add("events", 1) == 0
        assert client.produce("events", 1, 8, OLD) == 0
        assert client.end() == 0
        assert both.committed("events", 1, 2) == [7, 8]
