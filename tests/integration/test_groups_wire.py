"""Every version of every API of groups, on the bare protocol."""

import socket
import struct

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.clock import SystemClock
from millrace.errors import ErrorCode, InvalidTopicError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import Encoder
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header, has_tagged_response_header
from millrace.zk.session import ZooKeeperSession

PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x06events" + b"\x00\x00\x00\x00"
MEMBER_MS = 600_000  # no member sends heartbeats by itself
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


class Wire:
    """A socket, and requests over it."""

    def __init__(self, broker):
        host, port = broker.bootstrap.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def exchange(self, api_key, version, body):
        self.send(api_key, version, body)
        return self.answer(api_key, version)

    def send(self, api_key, version, body):
        self.number += 1
        self.socket.sendall(framed(encode_request_header(api_key, version, self.number, "wire"), body))

    def answer(self, api_key, version):
        (size,) = struct.unpack(">i", self.exactly(4))
        return self.exactly(size)[5 if has_tagged_response_header(api_key, version) else 4 :]

    def ask(self, api_key, version, **fields):
        self.send(api_key, version, encode(api_key, version, Direction.REQUEST, fields))
        return self.receive(api_key, version)

    def receive(self, api_key, version):
        return decode(api_key, version, Direction.RESPONSE, self.answer(api_key, version))

    def exactly(self, size):
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            assert chunk, "the broker closed the connection"
            data += chunk
        return data

    def join(self, group, version=5, member_id=""):
        self.send_join(group, version, member_id)
        return self.receive(ApiKey.JOIN_GROUP, version)

    def send_join(self, group, version, member_id=""):
        fields = {
            "group_id": group, "session_timeout": MEMBER_MS, "rebalance_timeout": MEMBER_MS, "member_id": member_id,
            "group_instance_id": None, "protocol_type": "consumer", "reason": None,
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        }  # fmt: skip
        self.send(ApiKey.JOIN_GROUP, version, encode(ApiKey.JOIN_GROUP, version, Direction.REQUEST, fields))

    def member(self, group, version=5):
        """A member in a stable group of its own."""
        joined = self.join(group, version)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.join(group, version, joined.member_id)
        assert joined.error_code == 0
        self.sync(group, joined.member_id, joined.generation_id, 3)
        return joined.member_id

    def sync(self, group, member_id, generation, version):
        return self.ask(
            ApiKey.SYNC_GROUP, version, group_id=group, generation_id=generation, member_id=member_id,
            group_instance_id=None, protocol_type="consumer", protocol_name="range",
            assignments=[{"member_id": member_id, "assignment": b"mine"}],
        )  # fmt: skip


@pytest.fixture(scope="module")
def wire_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("groups"), properties=PROPERTIES) as process:
        with Cluster(process.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 3)
        yield process


@pytest.fixture
def wire(wire_broker):
    with Wire(wire_broker) as connection:
        connection.ask(ApiKey.FIND_COORDINATOR, 0, key="any")
        yield connection


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(wire, wire_broker, version):
    keys = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
    answer = wire.ask(ApiKey.FIND_COORDINATOR, version, key_type=0, **keys)
    for found in answer.coordinators if version >= 4 else [answer]:
        assert (found.error_code, found.node_id, f"{found.host}:{found.port}") == (0, 1, wire_broker.bootstrap)


def test_coordinators_of_other_things_are_not_here(wire):
    answer = wire.ask(ApiKey.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=["a"])
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    assert answer.coordinators[0].error_message


@pytest.mark.parametrize("version", range(10))
def test_join_group(wire, version):
    group = f"join-{version}"
    joined = wire.join(group, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = wire.join(group, version, joined.member_id)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    (member,) = joined.members
    assert (member.member_id, member.metadata) == (joined.member_id, SUBSCRIPTION)


@pytest.mark.parametrize("version", range(6))
def test_sync_heartbeat_and_leave(wire, version):
    group = f"sync-{version}"
    joined = wire.join(group, 3)
    synced = wire.sync(group, joined.member_id, 1, version)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    one = {"group_id": group, "member_id": joined.member_id, "group_instance_id": None}
    for heartbeat_version in range(5):
        beats = [wire.ask(ApiKey.HEARTBEAT, heartbeat_version, generation_id=each, **one) for each in (1, 2)]
        assert [beat.error_code for beat in beats] == [0, ErrorCode.ILLEGAL_GENERATION]
    named = {"members": [{**one, "reason": "done"}, {**one, "member_id": "other"}]} if version >= 3 else {}
    left = wire.ask(ApiKey.LEAVE_GROUP, version, **one, **named)
    assert left.error_code == 0
    if version >= 3:
        assert [member.error_code for member in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert wire.ask(ApiKey.HEARTBEAT, 0, generation_id=1, **one).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(2, 10))
def test_offset_commit_and_fetch(wire, version):
    group = f"commit-{version}"
    partition = {"committed_leader_epoch": 4, "committed_metadata": "note"}
    offsets = [(1, 41), (7, 42)]
    answer = wire.ask(
        ApiKey.OFFSET_COMMIT, version, group_id=group, generation_id_or_member_epoch=-1, member_id="",
        group_instance_id=None, retention_time=-1,
        topics=[{"name": "events",
                 "partitions": [{"partition_index": index, "committed_offset": offset, **partition}
                                for index, offset in offsets]}],
    )  # fmt: skip
    codes = [one.error_code for one in answer.topics[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for fetch_version in range(1, 10):
        (topic,), error = fetch(wire, fetch_version, group, [1, 2])
        assert error == 0
        found = [(one.partition_index, one.committed_offset, one.metadata) for one in topic.partitions]
        assert found == [(1, 41, "note"), (2, -1, "")]
        if fetch_version >= 5:
            assert [one.committed_leader_epoch for one in topic.partitions] == [4 if version >= 6 else -1, -1]
        if fetch_version >= 2:
            (topic,), _ = fetch(wire, fetch_version, group, None)
            assert [one.partition_index for one in topic.partitions] == [1]
            assert topic.name == "events"


def fetch(wire, version, group, partitions):
    topics = None
    if partitions is not None:
        topics = [{"name": "events", "partition_indexes": partitions}]
    asked = {"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1}
    many = {"groups": [asked, {**asked, "group_id": "none"}]} if version >= 8 else {}
    answer = wire.ask(ApiKey.OFFSET_FETCH, version, require_stable=True, **asked, **many)
    if version >= 8:
        assert [one.group_id for one in answer.groups] == [group, "none"]
        return answer.groups[0].topics, answer.groups[0].error_code
    return answer.topics, answer.error_code if version >= 2 else 0


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(wire, version):
    group = f"describe-{version}"
    member_id = wire.member(group)
    asked = {"groups": [group, "nobody"], "include_authorized_operations": True}
    known, unknown = wire.ask(ApiKey.DESCRIBE_GROUPS, version, **asked).groups
    assert (known.error_code, known.group_state, known.protocol_type) == (0, "Stable", "consumer")
    (member,) = known.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "wire", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")
    if version >= 3:
        assert known.authorized_operations == ALL_OPERATIONS
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert unknown.group_state == "Dead"


@pytest.mark.parametrize("version", range(6))
def test_list_and_delete_groups(wire, version):
    full, empty = f"full-{version}", f"empty-{version}"
    wire.member(full)
    commit_one(wire, empty)
    states, types = ({"states_filter": ["stable"]}, {"types_filter": ["Classic"]}) if version >= 5 else ({}, {})
    listed = wire.ask(ApiKey.LIST_GROUPS, version, **{"states_filter": [], "types_filter": [], **states, **types})
    names = {one.group_id for one in listed.groups}
    assert (full in names, empty in names) == (True, version < 5)
    if version >= 5:
        assert {(one.group_state, one.group_type) for one in listed.groups} == {("Stable", "classic")}
    if version < 3:
        results = wire.ask(ApiKey.DELETE_GROUPS, version, groups_names=[full, empty, "nobody"]).results
        codes = [one.error_code for one in results]
        assert codes == [ErrorCode.NON_EMPTY_GROUP, 0, ErrorCode.GROUP_ID_NOT_FOUND]


def commit_one(wire, group, partition=0):
    return wire.ask(
        ApiKey.OFFSET_COMMIT, 2, group_id=group, generation_id_or_member_epoch=-1, member_id="", retention_time=-1,
        topics=[{"name": "events", "partitions": [
            {"partition_index": partition, "committed_offset": 1, "committed_metadata": None}]}],
    ).topics[0].partitions[0].error_code  # fmt: skip


def test_offset_delete(wire):
    def delete(group, topic):
        topics = [{"name": topic, "partitions": [{"partition_index": 0}, {"partition_index": 9}]}]
        answer = wire.ask(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=topics)
        return answer.error_code, [one.error_code for topic in answer.topics for one in topic.partitions]

    assert commit_one(wire, "forgets") == 0
    assert delete("forgets", "events") == (0, [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    (topic,), _ = fetch(wire, 5, "forgets", [0])
    assert topic.partitions[0].committed_offset == -1
    wire.member("subscribed")
    codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete("subscribed", "events") == (0, codes)
    assert delete("nobody", "events") == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_what_is_out_of_bounds_is_refused(wire):
    def join(**changed):
        fields = {
            "group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": "",
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
        }  # fmt: skip
        return wire.ask(ApiKey.JOIN_GROUP, 1, **{**fields, **changed}).error_code

    assert join(group_id="") == ErrorCode.INVALID_GROUP_ID
    assert join(session_timeout=5_999) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join(session_timeout=1_800_001) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join(member_id="unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert join(protocols=[]) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = wire.ask(
        ApiKey.OFFSET_COMMIT, 2, group_id="g", generation_id_or_member_epoch=-1, member_id="", retention_time=-1,
        topics=[{"name": "events", "partitions": [
            {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 4097}]}],
    )  # fmt: skip
    assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_nobody_else_writes_the_offsets_topic(wire_broker, wire):
    with Cluster(wire_broker.bootstrap) as cluster, pytest.raises(InvalidTopicError, match="coordinator alone"):
        SyncProducer(cluster).send("__consumer_offsets", 0, [NewRecord(b"value", b"key")])


def test_a_broker_that_stops_answers_whoever_waits(tmp_path):
    with BrokerProcess(tmp_path / "broker", properties=PROPERTIES) as broker, Wire(broker) as first:
        first.ask(ApiKey.FIND_COORDINATOR, 0, key="any")
        member_id = first.member("g", 3)
        with Wire(broker) as second:
            second.send_join("g", 3)
            while not first.ask(
                ApiKey.HEARTBEAT, 0, group_id="g", generation_id=1, member_id=member_id
            ).error_code:  # until the second one is waited for
                pass
            assert broker.stop() == 0
            assert second.receive(ApiKey.JOIN_GROUP, 3).error_code == ErrorCode.NOT_COORDINATOR


def legacy_commit(version, group, offset):
    out = Encoder(flexible=False)
    out.string(group)
    if version:
        out.int32(-1)
        out.string("")
    out.array_length(1)
    out.string("events")
    out.array_length(2)
    for partition in (0, 9):
        out.int32(partition)
        out.int64(offset)
        if version:
            out.int64(-1)
        out.string("kept")
    return b"".join(out.parts)


def legacy_fetch(group):
    out = Encoder(flexible=False)
    out.string(group)
    out.array_length(1)
    out.string("events")
    out.int32_array([0, 1])
    return b"".join(out.parts)


def legacy_answer(answer, read):
    decoder = Decoder(answer)
    assert (decoder.array_length(), decoder.string()) == (1, "events")
    return [read(decoder) for _ in range(decoder.array_length())]


def committed(decoder):
    return decoder.int32(), decoder.int16()


def fetched(decoder):
    return decoder.int32(), decoder.int64(), decoder.nullable_string(), decoder.int16()


UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_of_the_oldest_clients(wire, version):
    group = f"legacy-{version}"
    answer = wire.exchange(ApiKey.OFFSET_COMMIT, version, legacy_commit(version, group, 31))
    assert legacy_answer(answer, committed) == [(0, 0), (9, UNKNOWN)]
    answer = wire.exchange(ApiKey.OFFSET_FETCH, 0, legacy_fetch(group))
    assert legacy_answer(answer, fetched) == [(0, 31, "kept", 0), (1, -1, "", UNKNOWN)]
    (topic,), _ = fetch(wire, 1, group, [0])
    assert topic.partitions[0].committed_offset == 31


def test_offsets_of_the_oldest_clients_are_zookeepers(tmp_path, zookeeper):
    connect = f"{zookeeper.address}/legacy-offsets"
    with BrokerProcess(tmp_path / "broker", zookeeper=connect, properties=PROPERTIES) as broker, Wire(broker) as wire:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 3)
        answer = wire.exchange(ApiKey.OFFSET_COMMIT, 0, legacy_commit(0, "old", 31))
        assert legacy_answer(answer, committed) == [(0, 0), (9, UNKNOWN)]
        wire.exchange(ApiKey.OFFSET_COMMIT, 0, legacy_commit(0, "old", 32))
        answer = wire.exchange(ApiKey.OFFSET_FETCH, 0, legacy_fetch("old"))
        assert legacy_answer(answer, fetched) == [(0, 32, "", 0), (1, -1, "", UNKNOWN)]
        wire.ask(ApiKey.FIND_COORDINATOR, 0, key="old")
        (topic,), error = fetch(wire, 2, "old", [0])
        assert (topic.partitions[0].committed_offset, error) == (-1, 0)
    session = ZooKeeperSession(
        connect, session_timeout_ms=60_000, connection_timeout_ms=60_000, on_change=lambda _: None, clock=SystemClock()
    )
    session.start()
    try:
        assert session.get("/consumers/old/offsets/events/0") == b"32"
    finally:
        session.close()


LONG_POLL = {
    "replica_id": -1, "max_wait": 500, "min_bytes": 1, "max_bytes": 1, "isolation_level": 0,
    "topics": [{"topic": "events", "partitions": [{"partition": 2, "fetch_offset": 0, "partition_max_bytes": 1}]}],
}  # fmt: skip


class StaticMember(Wire):
    """A static member of a group, over a connection of its own."""

    def __init__(self, broker, group, instance_id):
        super().__init__(broker)
        self.who = {"group_id": group, "group_instance_id": instance_id, "member_id": ""}

    def put(self, api_key, version, **fields):
        self.send(api_key, version, encode(api_key, version, Direction.REQUEST, {**self.who, **fields}))

    def put_join(self):
        timeouts = {"session_timeout": MEMBER_MS, "rebalance_timeout": MEMBER_MS}
        protocols = [{"name": "range", "metadata": SUBSCRIPTION}]
        self.put(ApiKey.JOIN_GROUP, 5, **timeouts, protocol_type="consumer", protocols=protocols)

    def joined(self):
        answer = self.receive(ApiKey.JOIN_GROUP, 5)
        self.who["member_id"] = answer.member_id
        return answer

    def put_sync(self, *members):
        assignments = [{"member_id": one.who["member_id"], "assignment": b"half"} for one in members]
        self.put(ApiKey.SYNC_GROUP, 3, generation_id=2, assignments=assignments)

    def synced(self):
        return self.receive(ApiKey.SYNC_GROUP, 3).assignment


@pytest.mark.parametrize("before", ["nothing", "a long poll"])
@pytest.mark.parametrize("first", ["leader", "follower"])
def test_a_leader_has_its_answers_as_soon_as_a_follower(wire, wire_broker, before, first):
    """Whoever looks at the leader once the follower has its own generation, or assignment, finds the leader's there."""
    group = f"{before}-{first}"
    with StaticMember(wire_broker, group, "one") as leader, StaticMember(wire_broker, group, "two") as follower:
        leader.put_join()
        assert leader.joined().generation_id == 1
        follower.put_join()
        while not leader.ask(ApiKey.HEARTBEAT, 3, generation_id=1, **leader.who).error_code:
            pass
        leader.put_join()
        follower.joined()
        leader.socket.setblocking(False)
        assert leader.joined().generation_id == 2
        leader.socket.setblocking(True)
        if before == "a long poll":
            leader.put(ApiKey.FETCH, 4, **LONG_POLL)
        if first == "leader":
            leader.put_sync(leader, follower)
        follower.put_sync()
        if first == "follower":
            leader.put_sync(leader, follower)
        assert follower.synced() == b"half"
        leader.socket.setblocking(False)
        if before == "a long poll":
            leader.answer(ApiKey.FETCH, 4)
        assert leader.synced() == b"half"
