"""The same requests to Apache Kafka and to us, of every API of groups in every version of both: the same answers.

A script of requests plays on both; ids that a broker makes up, hosts, messages for people and what no version of Kafka
agrees about with another are left out. Messages are written and read by Kafka's own definitions.
"""

import socket
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster
from millrace.errors import SetupError
from millrace.wire.frame import framed
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_support.coordinating_brokers import COUNTS, coordinating_brokers
from millrace_support.kafka_messages import Messages

PEERS = Path(__file__).parents[2] / ".peers"
SCRIPTS = 10  # what newer versions add are topic ids, which each broker makes up
APIS = (
    "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup",
    "DescribeGroups", "ListGroups", "DeleteGroups", "OffsetDelete",
)  # fmt: skip
UNKNOWN_ID = "nobody"
MADE_UP = {"host", "port", "nodeId", "errorMessage", "clientHost", "throttleTimeMs", "authorizedOperations", "topicId"}


class Peer:
    """One broker, and what it said."""

    def __init__(self, bootstrap, messages, served):
        self.bootstrap, self.messages, self.served = bootstrap, messages, served
        self.socket = connect(bootstrap)
        self.number = 0
        self.names = {"": ""}
        self.said = []

    @contextmanager
    def another(self):
        """The same broker over a connection of its own, for a request that has to wait."""
        other = Peer(self.bootstrap, self.messages, self.served)
        other.names, other.said = self.names, self.said
        with other.socket:
            yield other

    def ask(self, api, version, **fields):
        """The answer in the nearest version that both peers serve."""
        self.send(api, version, **fields)
        return self.receive(api, version)

    def send(self, api, version, **fields):
        """Send without waiting for the answer."""
        self.number += 1
        version = self.nearest(api, version)
        known = {one.name for one in self.messages.definition(f"{api}Request", version).fields}
        request = {name: value for name, value in fields.items() if name in known}
        self.socket.sendall(framed(self.messages.encode_request(api, version, self.number, request)))

    def receive(self, api, version):
        """The answer to what was sent."""
        version = self.nearest(api, version)
        size = int.from_bytes(self.exactly(4), "big")
        _, answer = self.messages.decode_response(api, version, self.exactly(size))
        self.said.append((api, version, answer))
        return answer

    def nearest(self, api, version):
        lowest, highest = self.served[api]
        return min(max(version, lowest), highest)

    def exactly(self, size):
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            assert chunk, f"{self.said[-1:]}: the broker closed the connection"
            data += chunk
        return data

    def comparable(self):
        return [(api, version, self.plain(answer)) for api, version, answer in self.said]

    def plain(self, value):
        if isinstance(value, dict):
            if value.get("groupState", "Stable") != "Stable":  # 4.x shows the assignments of last time, 3.9 none
                value = {**value, "members": [one | {"memberAssignment": b""} for one in value.get("members", ())]}
            return {name: self.plain(one) for name, one in value.items() if name not in MADE_UP}
        if isinstance(value, list):
            return sorted((self.plain(one) for one in value), key=repr)
        return self.names.get(value, value) if isinstance(value, str) else value


def connect(bootstrap):
    return socket.create_connection(tuple(bootstrap.split(":")), timeout=60)


def play(peer, version):
    """One group's life."""
    group = f"group-{version}"
    peer.ask("FindCoordinator", version, key=group, keyType=0, coordinatorKeys=[group])
    peer.ask("FindCoordinator", version, key=group, keyType=9, coordinatorKeys=[group]) if version else None
    member = joined(peer, version, group)
    for changes in (
        {"groupId": ""}, {"sessionTimeoutMs": 1}, {"memberId": UNKNOWN_ID}, {"protocolType": "connect"},
        {"protocols": [{"name": "other", "metadata": b""}]}, {"protocols": []},
    ):  # fmt: skip
        join(peer, version, group, **{"memberId": member, **changes})
    commit(peer, version, group, member)
    sync(peer, version, group, memberId=UNKNOWN_ID)
    sync(peer, version, group, memberId=member, generationId=7)
    sync(peer, version, group, memberId=member)
    sync(peer, version, group, memberId=member)
    for changes in ({}, {"generationId": 7}, {"memberId": UNKNOWN_ID}, {"groupId": ""}, {"groupId": "missing"}):
        fields = {"groupId": group, "generationId": 1, "memberId": member, **changes}
        peer.ask("Heartbeat", version, **fields)
    commit(peer, version, group, member)
    commit(peer, version, group, member, generation=7)
    commit(peer, version, group, UNKNOWN_ID)
    commit(peer, version, group, "", generation=-1)
    commit(peer, version, f"simple-{version}", "", generation=-1)
    if version < 9 or peer.served["DescribeGroups"][1] >= 6:  # 3.9 has GROUP_ID_NOT_FOUND in its documentation only
        commit(peer, version, "missing", "m", generation=3)
    for asked in (group, f"simple-{version}", "missing"):
        fetch(peer, version, asked, [0, 1, 9])
        fetch(peer, version, asked, None) if version >= 2 else None
    peer.ask("DescribeGroups", version, groups=[group, f"simple-{version}", "missing", ""])
    listed(peer, version, [])
    listed(peer, version, ["Stable"])
    listed(peer, version, ["empty", "DEAD"])
    delete_offsets(peer, group)
    peer.ask("DeleteGroups", version, groupsNames=[group, "missing"])
    leave(peer, version, group, UNKNOWN_ID)
    leave(peer, version, "missing", UNKNOWN_ID)
    leave(peer, version, group, member)
    peer.ask("DescribeGroups", version, groups=[group])
    sync(peer, version, group, memberId=member)
    delete_offsets(peer, group)
    delete_offsets(peer, "missing")
    fetch(peer, version, group, [0, 1])
    peer.ask("DeleteGroups", version, groupsNames=[group, f"simple-{version}"])
    peer.ask("DeleteGroups", version, groupsNames=[group])
    fetch(peer, version, group, [1])


def play_static(peer, version):
    """A static member restarts, is fenced, and is expelled by an administrator."""
    group, one = f"static-{version}", {"groupInstanceId": "one"}
    first = named(peer, join(peer, version, group, memberId="", **one), "first")
    sync(peer, version, group, memberId=first, **one)
    second = named(peer, join(peer, version, group, memberId="", **one), "second")
    for member in (first, second):
        sync(peer, version, group, memberId=member, **one)
        peer.ask("Heartbeat", version, groupId=group, generationId=1, memberId=member, **one)
        peer.ask("Heartbeat", version, groupId=group, generationId=1, memberId=member, groupInstanceId="other")
        commit(peer, max(version, 7), group, member, **one)
        join(peer, version, group, memberId=member, **one) if member == first else None
    peer.ask("DescribeGroups", version, groups=[group])
    third = named(
        peer, join(peer, version, group, memberId="", protocols=protocols(peer, "sticky", "range"), **one), "3"
    )
    sync(peer, version, group, memberId=third, **one)
    fourth = named(peer, join(peer, version, group, memberId="", protocols=protocols(peer, "sticky"), **one), "fourth")
    sync(peer, version, group, memberId=fourth, generationId=2, protocolName="sticky", **one)
    peer.ask("DescribeGroups", version, groups=[group])
    for name in ("other", "one"):
        members = [{"memberId": "", "groupInstanceId": name, "reason": "expelled"}]
        peer.ask("LeaveGroup", version, groupId=group, members=members)
    peer.ask("DescribeGroups", version, groups=[group])


def play_two(peer, version):
    """Two members, and what each is told while the other makes the group rebalance."""
    group = f"two-{version}"
    first = joined(peer, version, group)
    sync(peer, version, group, memberId=first)
    with peer.another() as waiting:
        second = join_beside(waiting, version, group)
        await_rebalance(peer, version, group, first)
        commit(peer, version, group, first)
        sync(peer, version, group, memberId=first)
        sync(peer, version, group, memberId=UNKNOWN_ID)
        join(peer, version, group, memberId=UNKNOWN_ID)
        join(peer, version, group, memberId=first)
        answer = waiting.receive("JoinGroup", version)
        second = second or named(peer, answer, f"second of {group}")
        waiting.send("SyncGroup", version, **sync_fields(group, memberId=second, generationId=2))
        beat(peer, version, group, first, generationId=2)
        commit(peer, version, group, second, generation=2)
        commit(peer, version, group, UNKNOWN_ID, generation=2)
        sync(peer, version, group, memberId=first, generationId=2)
        waiting.receive("SyncGroup", version)
        waiting.send("JoinGroup", version, **join_fields(peer, group, memberId=first))  # the leader rebalances
        await_rebalance(peer, version, group, second, generationId=2)
        commit(peer, version, group, second, generation=2)
        leave(peer, version, group, second)
        waiting.receive("JoinGroup", version)
    sync(peer, version, group, memberId=second, generationId=3)
    beat(peer, version, group, second, generationId=3)
    join(peer, version, group, memberId=second)
    peer.ask("DescribeGroups", version, groups=[group])
    sync(peer, version, group, memberId=first, generationId=3)
    leave(peer, version, group, first)


def join_beside(waiting, version, group):
    """Sends a JoinGroup that waits; returns the member's id, "" where it has none yet."""
    member = ""
    if waiting.nearest("JoinGroup", version) >= 4:
        member = named(waiting, join(waiting, version, group, memberId=""), f"second of {group}")
    waiting.send("JoinGroup", version, **join_fields(waiting, group, memberId=member))
    return member


def await_rebalance(peer, version, group, member, **changes):
    """Beats until the broker has seen the request on the other connection; only the last answer is compared."""
    while not beat(peer, version, group, member, **changes)["errorCode"]:
        peer.said.pop()


def beat(peer, version, group, member, **changes):
    fields = {"groupId": group, "generationId": 1, "memberId": member, "groupInstanceId": None, **changes}
    return peer.ask("Heartbeat", version, **fields)


def joined(peer, version, group):
    member = named(peer, join(peer, version, group, memberId=""), f"member of {group}")
    if peer.said[-1][2]["errorCode"]:
        member = named(peer, join(peer, version, group, memberId=member), f"member of {group}")
    return member


def named(peer, answer, name):
    """Returns the member id that a broker has made up, which is compared under this name from now on."""
    peer.names[answer["memberId"]] = name
    return answer["memberId"]


def protocols(peer, *names):
    subscription = peer.messages.encode("ConsumerProtocolSubscription", 0, {"topics": ["events"], "userData": None})
    return [{"name": name, "metadata": b"\x00\x00" + subscription} for name in names]


def join(peer, version, group, **changes):
    return peer.ask("JoinGroup", version, **join_fields(peer, group, **changes))


def join_fields(peer, group, **changes):
    return {
        "groupId": group, "sessionTimeoutMs": 60_000, "rebalanceTimeoutMs": 60_000, "groupInstanceId": None,
        "protocolType": "consumer", "protocols": protocols(peer, "range"), "reason": "a test", **changes,
    }  # fmt: skip


def sync(peer, version, group, **changes):
    peer.ask("SyncGroup", version, **sync_fields(group, **changes))


def sync_fields(group, **changes):
    return {
        "groupId": group, "generationId": 1, "groupInstanceId": None, "protocolType": "consumer",
        "protocolName": "range", "assignments": [{"memberId": changes["memberId"], "assignment": b"all"}], **changes,
    }  # fmt: skip


def commit(peer, version, group, member, *, generation=1, groupInstanceId=None):  # noqa: N803
    leader_epoch = {"committedLeaderEpoch": 3}
    partitions = [
        {"partitionIndex": index, "committedOffset": 10 + index, "committedMetadata": metadata, **leader_epoch}
        for index, metadata in ((0, "note"), (1, None), (2, "x" * 5_000), (9, ""))
    ]
    topics = [{"name": "events", "partitions": partitions}, {"name": "no-topic", "partitions": partitions[:1]}]
    peer.ask(
        "OffsetCommit", min(max(version, 1), 9), groupId=group, generationIdOrMemberEpoch=generation, memberId=member,
        groupInstanceId=groupInstanceId, retentionTimeMs=-1, topics=topics,
    )  # fmt: skip


def fetch(peer, version, group, partitions):
    version = min(max(version, 1), 9)
    topics = None if partitions is None else [{"name": "events", "partitionIndexes": partitions}]
    peer.ask(
        "OffsetFetch", version, groupId=group, topics=topics, requireStable=bool(version % 2),
        groups=[{"groupId": group, "topics": topics}],
    )  # fmt: skip


def listed(peer, version, states):
    answer = peer.ask("ListGroups", version, statesFilter=states, typesFilter=["Classic"] if version >= 5 else [])
    ours = (f"group-{version}", f"simple-{version}")
    answer["groups"] = [one for one in answer["groups"] if one["groupId"] in ours]


def delete_offsets(peer, group):
    topics = [{"name": name, "partitions": [{"partitionIndex": 0}]} for name in ("events", "no-topic")]
    peer.ask("OffsetDelete", 0, groupId=group, topics=topics)


def leave(peer, version, group, member):
    members = [{"memberId": member, "groupInstanceId": None, "reason": "done"}]
    peer.ask("LeaveGroup", version, groupId=group, memberId=member, members=members)


def versions_of(bootstrap, messages):
    with connect(bootstrap) as connected:
        connected.sendall(framed(messages.encode_request("ApiVersions", 0, 1, {})))
        stream = connected.makefile("rb")
        frame = stream.read(int.from_bytes(stream.read(4), "big"))
    _, answer = messages.decode_response("ApiVersions", 0, frame)
    return {one["apiKey"]: (one["minVersion"], one["maxVersion"]) for one in answer["apiKeys"]}


def common(first, second):
    return max(first[0], second[0]), min(first[1], second[1])


@pytest.fixture(scope="module", params=product(["3.9", "4.1"], COUNTS), ids=lambda param: f"{param[0]}-{param[1]}")
def peers(request, tmp_path_factory, zookeeper):
    """(Kafka, one or three of ours), with a topic of three partitions each."""
    version, count = request.param
    try:
        kafka = find_kafka(version, PEERS)
    except SetupError as error:
        pytest.skip(str(error))
    messages = Messages([find_kafka("4.1", PEERS), find_kafka("3.9", PEERS)])
    folder = tmp_path_factory.mktemp("peers")
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with (
        KafkaBroker(kafka, folder / "kafka", properties=settings) as theirs,
        coordinating_brokers(count, folder / "ours", zookeeper.address, settings) as ours,
    ):
        both = []
        addresses = (theirs.bootstrap, ours.coordinator)
        offered = [versions_of(bootstrap, messages) for bootstrap in addresses]
        served = {api: common(*(one[messages.api_key(api)] for one in offered)) for api in APIS}
        for bootstrap in addresses:
            with Cluster(bootstrap) as cluster:
                Admin(cluster).create_topic("events", 3, -1)
            both.append(Peer(bootstrap, messages, served))
            await_coordinator(both[-1])
        yield both
        for one in both:
            one.socket.close()


def await_coordinator(peer):
    while True:
        found = peer.ask("FindCoordinator", 1, key="any", keyType=0)
        ready = peer.ask("OffsetFetch", 5, groupId="any", topics=[])
        if not found["errorCode"] and not ready["errorCode"]:
            peer.said.clear()
            return


def assert_same(peers, script, version):
    for peer in peers:
        peer.said.clear()
        script(peer, version)
    theirs, ours = (peer.comparable() for peer in peers)
    different = [(kafkas, mine) for kafkas, mine in zip(theirs, ours, strict=True) if kafkas != mine]
    assert different == []


@pytest.mark.parametrize("version", range(SCRIPTS))
def test_answers_are_those_of_kafka(peers, version):
    assert_same(peers, play, version)


@pytest.mark.parametrize("version", range(5, SCRIPTS))
def test_static_members_are_answered_as_by_kafka(peers, version):
    assert_same(peers, play_static, version)


@pytest.mark.parametrize("version", range(SCRIPTS))
def test_rebalances_are_answered_as_by_kafka(peers, version):
    assert_same(peers, play_two, version)
