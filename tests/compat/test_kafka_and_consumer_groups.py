"""The consumer group protocol and Apache Kafka 4.1: the same answers, its consumers as members, its tools' view.

One conversation is held with both brokers, request by request. Ids are made comparable; of a message it only counts
whether there is one, as each broker has its own words.
"""

import re
import socket
import struct
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupType
from confluent_kafka.admin import AdminClient

from millrace.client import Admin, Cluster, SyncProducer
from millrace.errors import SetupError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.header import encode_request_header, has_tagged_response_header
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_support.coordinating_brokers import COUNTS, coordinating_brokers
from millrace_support.kafka_tools import PATIENT_GROUPS
from millrace_support.waiting import until

PARTITIONS = 4
RECORDS_EACH = 5
DEADLINE_S = 120
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP = "kafka.tools.DumpLogSegments"
SILENT = 0
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
QUICK = PROPERTIES | {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
}
FORGETFUL = QUICK | {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "5000"}


@pytest.fixture(scope="module")
def kafka_41():
    try:
        found = find_kafka("4.1", Path(__file__).parents[2] / ".peers")
    except SetupError as error:
        pytest.skip(str(error))
    if not any(found.libs.glob("kafka-tools-4*.jar")):
        pytest.skip("Apache Kafka's tools are not there: `make peers` brings them")
    return found


@pytest.fixture(scope="module", params=COUNTS)
def quick_broker(request, tmp_path_factory, zookeeper):
    with coordinating_brokers(request.param, tmp_path_factory.mktemp("quick"), zookeeper.address, QUICK) as brokers:
        yield brokers


class Talk:
    """A conversation with one broker, and what it answered, made comparable."""

    def __init__(self, bootstrap):
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self._asked = 0
        self._ids = {}
        self.answers = []

    def ask(self, api_key, version, **fields):
        self._asked += 1
        body = encode_request_header(api_key, version, self._asked, "talk")
        body += encode(api_key, version, Direction.REQUEST, fields)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        frame = self._take(struct.unpack(">i", self._take(4))[0])
        header_bytes = 5 if has_tagged_response_header(api_key, version) else 4
        return decode(api_key, version, Direction.RESPONSE, frame[header_bytes:])

    def _take(self, size):
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            assert chunk, "closed by the broker"
            data += chunk
        return data

    def prepare(self, **topics):
        """Make topics, and wait until the broker coordinates groups."""
        coordinated = {"key_type": 0, "coordinator_keys": ("g",)}
        until(lambda: not self.ask(ApiKey.FIND_COORDINATOR, 4, **coordinated).coordinators[0].error_code)
        new = [
            {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": (), "configs": ()}
            for name, count in topics.items()
        ]
        self.ask(ApiKey.CREATE_TOPICS, 7, timeout=60_000, validate_only=False, topics=new)
        asked = [{"name": name, "topic_id": None} for name in topics]
        fields = {"topics": asked, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        found = until(
            lambda: self.ask(ApiKey.METADATA, 12, **fields).topics,
            lambda topics: not any(topic.error_code for topic in topics),
        )
        self._ids = {topic.name: topic.topic_id for topic in found}
        self._await_group_coordinator(topics)

    def _await_group_coordinator(self, topics):
        """Kafka's coordinator hears of topics a little after its metadata do."""
        said = {"rebalance_timeout": 60_000, "topic_partitions": (), "subscribed_topic_names": tuple(topics)}
        epoch, assigned = 0, 0
        deadline = time.monotonic() + DEADLINE_S
        while assigned < len(topics):
            assert time.monotonic() < deadline
            fields = {"group_id": "probe", "member_id": "p", "member_epoch": epoch, "topic_partitions": None} | said
            answer = self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **fields)
            if answer.error_code:
                continue  # it may still be loading
            epoch, said = answer.member_epoch, {}
            assigned = len(answer.assignment.topic_partitions) if answer.assignment else assigned
        leaving = {"group_id": "probe", "member_id": "p", "member_epoch": -1, "topic_partitions": None}
        self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **leaving)
        self.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("probe",))

    def beat(self, member_id, epoch, *, group="g", version=1, owned=None, names=None, **said):
        fields = {"group_id": group, "member_id": member_id, "member_epoch": epoch}
        if epoch == 0:
            fields |= {"rebalance_timeout": 60_000, "topic_partitions": (), "subscribed_topic_names": ("a",)}
        fields.setdefault("topic_partitions", None)
        if owned is not None:
            fields["topic_partitions"] = [{"topic_id": self._ids[name], "partitions": owned[name]} for name in owned]
        if names is not None:
            fields["subscribed_topic_names"] = names
        fields |= said
        silent = [name for name, value in fields.items() if value is SILENT and name != "member_epoch"]
        for name in silent:
            del fields[name]
        answer = self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **fields)
        self.answers.append((fields | {"version": version, "topic_partitions": owned}, self._comparable(answer)))

    def _comparable(self, answer):
        names = {topic_id: name for name, topic_id in self._ids.items()}
        assignment = answer.assignment and sorted(
            (names[one.topic_id], tuple(sorted(one.partitions))) for one in answer.assignment.topic_partitions
        )
        told = (answer.member_id, answer.member_epoch, answer.heartbeat_interval, assignment)
        return (int(answer.error_code), bool(answer.error_message), *told)

    def describe(self, *groups):
        answer = self.ask(
            ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=groups, include_authorized_operations=True
        ).groups  # fmt: skip
        text = without_messages(sorted(answer, key=lambda group: group.group_id))
        for name, topic_id in self._ids.items():
            text = text.replace(str(topic_id), name)
        self.answers.append((("describe", groups), text))

    def list(self, **filters):
        answer = self.ask(ApiKey.LIST_GROUPS, 5, **{"states_filter": (), "types_filter": ()} | filters).groups
        self.answers.append((("list", filters), str(sorted(answer, key=lambda group: group.group_id))))

    def classic_describe(self, version, *groups):
        answer = self.ask(ApiKey.DESCRIBE_GROUPS, version, groups=groups, include_authorized_operations=False).groups
        text = without_messages(sorted(answer, key=lambda group: group.group_id))
        self.answers.append((("classic describe", version), text))

    def commit(self, member_id, epoch, *, group="d", version=9):
        offset = {
            "partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""
        }  # fmt: skip
        answer = self.ask(
            ApiKey.OFFSET_COMMIT, version, group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id,
            group_instance_id=None, topics=[{"name": "a", "partitions": [offset]}],
        )  # fmt: skip
        self.answers.append((("commit", member_id, epoch, group, version), str(answer)))

    def fetch(self, member_id, epoch, *, group="d"):
        asked = {
            "group_id": group, "member_id": member_id, "member_epoch": epoch,
            "topics": [{"name": "a", "partition_indexes": (0,)}],
        }  # fmt: skip
        answer = self.ask(ApiKey.OFFSET_FETCH, 9, groups=[asked], require_stable=False)
        self.answers.append((("fetch", member_id, epoch, group), str(answer)))

    def delete(self, *groups):
        answer = self.ask(ApiKey.DELETE_GROUPS, 2, groups_names=groups).results
        self.answers.append((("delete", groups), str(sorted(answer, key=lambda group: group.group_id))))


def without_messages(groups):
    """The groups as text, with a mark for each error message."""
    return re.sub(r"error_message=('[^']*'|\"[^\"]*\")", "error_message=<text>", str(groups))


def converse(bootstrap):
    talk = Talk(bootstrap)
    talk.prepare(a=4, b=2)
    requests_that_cant_be(talk)
    two_members(talk)
    static_members(talk)
    talk.beat("e1", 0, group="e", names=())
    talk.beat("e1", 1, group="e")
    talk.beat("n1", 0, group="n", names=("nope",))
    talk.beat("x1", 0, group="x", subscribed_topic_names=SILENT, subscribed_topic_regex="")
    talk.beat("x1", 1, group="x")
    talk.describe("st", "nope", "", "g")
    offsets(talk)
    return talk.answers


def requests_that_cant_be(talk):
    talk.beat("", 0)
    for epoch in (1, -1, -2, -3):
        talk.beat("m1", epoch)
    talk.beat("m", 0, group="")
    talk.beat("m1", 0, rebalance_timeout=-1)
    talk.beat("m1", 0, topic_partitions=None)
    talk.beat("m1", 0, subscribed_topic_names=SILENT)
    talk.beat("m1", 0, server_assignor="nope")
    talk.beat("m1", 0, rack_id="")
    talk.beat("m1", 0, instance_id=" ")
    talk.beat("m1", 0, subscribed_topic_regex="(a")


def two_members(talk):
    for epoch in (0, 0, 1, 5):
        talk.beat("m1", epoch)
    for epoch in (1, -1):
        talk.beat("stranger", epoch)
    talk.beat("m1", 1, instance_id="i9")
    for epoch in (0, 0, 2):
        talk.beat("m2", epoch)
    talk.beat("m1", 1)
    talk.beat("m1", 1)
    talk.beat("m1", 1, owned={"a": (0, 1, 2, 3)})
    talk.beat("m1", 1, owned={"a": (0, 1)})
    talk.beat("m2", 2)
    talk.beat("m2", 2)
    talk.beat("m1", 1)
    talk.beat("m1", 1, owned={"a": (0, 1)})
    talk.beat("m1", 2)
    talk.beat("m1", 2, names=("a", "b"))
    talk.beat("m1", 3)
    talk.beat("m2", 2)
    talk.beat("m2", 3)
    talk.beat("m1", 3, owned={"a": (0, 1)})
    talk.beat("m2", -1)
    talk.beat("m1", 3)
    talk.beat("m1", 4, owned={"a": (0, 1, 2, 3)}, rebalance_timeout=60_000, names=("a", "b"))
    talk.beat("m1", -1)
    talk.beat("m1", 4)


def static_members(talk):
    talk.beat("s1", 0, group="st", instance_id="i1")
    talk.beat("s1", 1, group="st", instance_id="i1")
    talk.beat("s2", 0, group="st", instance_id="i1")
    talk.beat("s2", 1, group="st", instance_id="i1")
    talk.beat("s1", 1, group="st", instance_id="i2")
    talk.beat("s1", -2, group="st", instance_id="i1")
    talk.beat("s2", 0, group="st", instance_id="i1")
    talk.beat("s1", 1, group="st", instance_id="i1")
    talk.beat("s2", 1, group="st", instance_id="i1")
    talk.beat("s2", -1, group="st", instance_id="i1")


def offsets(talk):
    talk.beat("d1", 0, group="d", instance_id="i1", rack_id="r")
    talk.describe("d")
    talk.list(types_filter=("consumer",))
    talk.list(states_filter=("empty",))
    for version in (5, 6):
        talk.classic_describe(version, "d", "nope")
    for member_id, epoch in (("d1", 1), ("d1", 0), ("d1", 2), ("stranger", 1), ("", -1)):
        talk.commit(member_id, epoch)
        talk.fetch(member_id, epoch)
    talk.commit("d1", 1, version=8)
    talk.commit("", -1, group="st")
    talk.commit("stranger", 3, group="st")
    for version in (8, 9):
        talk.commit("stranger", 1, group="none", version=version)
    talk.fetch(None, -1)
    for group in ("none", "st"):
        talk.fetch("stranger", 1, group=group)
    talk.delete("d", "st", "none")


@pytest.mark.parametrize("count", COUNTS)
def test_every_request_is_answered_as_kafka_answers_it(kafka_41, tmp_path, zookeeper, count):
    with coordinating_brokers(count, tmp_path, zookeeper.address, PROPERTIES) as brokers:
        ours = converse(brokers.coordinator)
    with KafkaBroker(kafka_41, tmp_path / "kafka") as broker:
        theirs = converse(broker.bootstrap)
    assert len(ours) > 80
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other


def fill(broker, name):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS, -1)
        producer = SyncProducer(cluster)
        for partition in range(PARTITIONS):
            producer.send(name, partition, [NewRecord(b"%d" % index) for index in range(RECORDS_EACH)])


@pytest.fixture
def topic(quick_broker):
    name = f"events-{uuid4().hex[:8]}"
    fill(quick_broker, name)
    return name


def member(broker, topic):
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.subscribe([topic])
    return made


def poll_until(holds, *members):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, [one.assignment() for one in members]
        for one in members:
            one.poll(0.05)


@contextmanager
def console(kafka, broker, topic, *properties):
    """Kafka's console consumer, running."""
    settings = [part for one in properties for part in ("--consumer-property", one)]
    command = kafka.command(
        CONSOLE_CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", topic, *settings
    )
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def type_of(broker, group):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return admin.describe_consumer_groups([group])[group].result(DEADLINE_S).type


def test_kafkas_console_consumer_reads_by_the_new_protocol_and_kafkas_tool_describes_it(kafka_41, quick_broker, topic):
    said = kafka_41.run(
        CONSOLE_CONSUMER, "--bootstrap-server", quick_broker.bootstrap, "--topic", topic, "--group", topic,
        "--consumer-property", "group.protocol=consumer", "--consumer-property", "auto.offset.reset=earliest",
        "--max-messages", str(PARTITIONS * RECORDS_EACH),
    )  # fmt: skip
    assert said.count(f"Processed a total of {PARTITIONS * RECORDS_EACH} messages") == 1
    one = member(quick_broker, topic)
    poll_until(lambda: len(one.assignment()) == PARTITIONS, one)

    def described(*options):
        where = ("--bootstrap-server", quick_broker.bootstrap, *PATIENT_GROUPS)
        return kafka_41.run(GROUPS_TOOL, *where, "--describe", "--group", topic, *options)

    assert f"{topic}:0,1,2,3" in described("--members", "--verbose")
    poll_until(lambda: "Stable" in described("--state"), one)  # once the member has said what it owns
    assert "uniform" in described("--state")
    assert len(one.committed(one.assignment(), timeout=DEADLINE_S)) == PARTITIONS
    assert {each.offset for each in one.committed(one.assignment(), timeout=DEADLINE_S)} == {RECORDS_EACH}
    one.close()


@pytest.fixture(params=COUNTS)
def forgetful_broker(request, tmp_path, zookeeper):
    """Yields brokers that take a member for dead after five seconds without a heartbeat."""
    with coordinating_brokers(request.param, tmp_path, zookeeper.address, FORGETFUL) as brokers:
        yield brokers


def test_a_java_consumer_and_librdkafka_share_a_group_until_one_is_killed(kafka_41, forgetful_broker):
    topic = "shared"
    fill(forgetful_broker, topic)
    ours = member(forgetful_broker, topic)
    poll_until(lambda: len(ours.assignment()) == PARTITIONS, ours)
    with console(kafka_41, forgetful_broker, topic, "group.protocol=consumer") as java:
        poll_until(lambda: len(ours.assignment()) == PARTITIONS // 2, ours)
        java.kill()
    poll_until(lambda: len(ours.assignment()) == PARTITIONS, ours)
    with console(kafka_41, forgetful_broker, topic, "group.protocol=consumer") as java:
        poll_until(lambda: len(ours.assignment()) == PARTITIONS // 2, ours)
        java.terminate()  # it leaves
        java.wait(DEADLINE_S)
        poll_until(lambda: len(ours.assignment()) == PARTITIONS, ours)
    ours.close()


@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_a_classic_java_consumer_goes_on_while_its_group_is_upgraded_and_downgraded(
    kafka_41, quick_broker, topic, assignor
):
    strategy = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}"
    with console(kafka_41, quick_broker, topic, strategy, "heartbeat.interval.ms=200"):
        admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap})
        until(lambda: assigned(admin, topic))
        assert type_of(quick_broker, topic) is ConsumerGroupType.CLASSIC
        ours = member(quick_broker, topic)
        poll_until(lambda: len(ours.assignment()) == PARTITIONS // 2, ours)
        assert type_of(quick_broker, topic) is ConsumerGroupType.CONSUMER
        ours.close()
        until(lambda: assigned(admin, topic), lambda shares: shares == [PARTITIONS])
        assert type_of(quick_broker, topic) is ConsumerGroupType.CLASSIC


def assigned(admin, group):
    """How many partitions each member has; none where there is no group yet."""
    found = admin.list_consumer_groups().result(DEADLINE_S).valid
    if group not in {one.group_id for one in found}:
        return []
    members = admin.describe_consumer_groups([group])[group].result(DEADLINE_S).members
    return [len(one.assignment.topic_partitions) for one in members if one.assignment.topic_partitions]


def test_kafkas_dump_tool_reads_the_records(kafka_41, tmp_path):
    with BrokerProcess(tmp_path / "dumped", properties=QUICK) as broker:
        fill(broker, "events")
        first, second = member(broker, "events"), member(broker, "events")
        poll_until(lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2, first, second)
        first.close()
        second.close()
    (log,) = (tmp_path / "dumped" / "__consumer_offsets-0").glob("*.log")
    dumped = kafka_41.run(DUMP, "--files", str(log), "--offsets-decoder")
    for kind in ("3", "5", "6", "7", "8"):
        assert f'key: {{"type":"{kind}","data":{{"groupId":"events"' in dumped
    assert '"metadataHash"' in dumped
    assert "Failed to decode" not in dumped
