"""`GroupMember` on Millrace and on Apache Kafka: what becomes of the members of a group, whatever happens to them."""

import contextlib
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, Groups
from millrace.client.connection import asking
from millrace.client.group_member import GroupMember, GroupMemberClosedError
from millrace.client.producer import TransactionFailedError
from millrace.errors import BrokerError, ClientError, ErrorCode
from millrace.testing.broker import BrokerProcess
from millrace.wire.messages import LEAVE_GROUP
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.await_brokers import await_coordinators
from millrace_support.waiting import until
from millrace_support.zookeeper_sessions import end_session

pytestmark = pytest.mark.peers
PROPERTIES = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",  # a killed broker of Kafka recovers each of them
    "transaction.state.log.num.partitions": "1",
}
SOON_FORGOTTEN = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500"}
"""For a KRaft controller, which registers no successor of a killed broker before that one's session has ended."""
SESSION_MS = 2000
PROCESS = Path(__file__).with_name("group_member_process.py")


class Served(NamedTuple):
    """A broker, and the address of its ZooKeeper if it has one."""

    process: BrokerProcess | KafkaBroker
    zookeeper: str | None = None

    @property
    def bootstrap(self):
        return self.process.bootstrap

    def kill(self):
        self.process.kill()
        if self.zookeeper is not None:
            end_session(self.zookeeper, 1)

    def stop(self):
        self.process.stop()


@pytest.fixture(scope="module", params=["millrace", "3.9", "4.1"])
def broker(request, find_peer, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "millrace":
        with BrokerProcess(folder, properties=PROPERTIES) as started:
            yield Served(started)
        return
    zookeeper = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}" if request.param == "3.9" else None
    properties = PROPERTIES if zookeeper else PROPERTIES | SOON_FORGOTTEN
    with KafkaBroker(find_peer(request.param), folder, zookeeper=zookeeper, properties=properties) as started:
        await_coordinators(started)
        yield Served(started, zookeeper)


@pytest.fixture
def group():
    return f"g-{uuid4().hex}"


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as opened:
        yield opened


class Worker(GroupMember):
    """A member whose leader assigns to each the names of all, and what it has been given to assign."""

    def __init__(self, cluster, group, name, **options):
        self.given, self.assignment, self.revoked, self.leader_calls = b"", None, 0, 0
        options = {"session_timeout_ms": SESSION_MS, "protocol_type": "test", "protocol": "share"} | options
        super().__init__(cluster, group, metadata=name, assign=self._share, on_revoked=self._let_go, **options)

    def _share(self, members):
        self.leader_calls += 1
        return dict.fromkeys(members, b",".join(sorted(members.values())) + self.given)

    def _let_go(self):
        self.assignment, self.revoked = None, self.revoked + 1

    def look(self):
        found = self.poll(0.01)
        if found is not None:
            self.assignment = found
        return self.assignment


@pytest.fixture
def worker(cluster, group):
    with contextlib.ExitStack() as opened:
        yield lambda name, **options: opened.enter_context(Worker(cluster, group, name, **options))


def settled(assignment, *workers):
    until(lambda: {one.look() for one in workers}, {assignment}.__eq__)


def test_members_come_and_go(worker):
    one = worker(b"a")
    settled(b"a", one)
    two = worker(b"b")
    settled(b"a,b", one, two)
    assert (one.is_leader, two.is_leader) == (True, False)
    assert (one.revoked, two.revoked, two.leader_calls) == (1, 0, 0)
    assert one.group_metadata.generation_id == two.group_metadata.generation_id
    one.close()
    with pytest.raises(GroupMemberClosedError):
        one.poll()
    settled(b"b", two)
    assert two.is_leader
    assert two.is_current


def test_the_leader_assigns_again_and_a_member_tells_other_metadata(worker):
    leader = worker(b"a")
    settled(b"a", leader)
    other = worker(b"b")
    settled(b"a,b", leader, other)
    leader.given = b" and more"
    leader.rejoin()
    settled(b"a,b and more", leader, other)
    other.rejoin(b"c")
    settled(b"a,c and more", leader, other)


def test_what_is_not_let_go_of_is_given_away_after_the_rebalance_timeout(worker):
    slow = worker(b"a", rebalance_timeout_ms=1500)
    settled(b"a", slow)
    quick = worker(b"b", rebalance_timeout_ms=1500)
    settled(b"b", quick)
    until(lambda: not slow.is_current)
    assert slow.assignment == b"a"
    settled(b"a,b", slow, quick)
    assert slow.revoked == 1


def test_a_join_that_waits_hinders_nobody(worker, cluster, group):
    holds = worker(b"a", rebalance_timeout_ms=60_000)
    settled(b"a", holds)
    waits = worker(b"b")
    until(lambda: Groups(cluster).describe(group).state == "PreparingRebalance")
    assert waits.poll() is None
    with pytest.raises(ClientError, match="no assignment yet"):
        _ = waits.group_metadata
    waits.close()
    assert not waits._thread.is_alive()
    settled(b"a", holds)


def removed(cluster, group, member_id):
    ask = LEAVE_GROUP.ask({"group_id": group, "member_id": member_id, "members": [{"member_id": member_id}]})
    cluster.on_coordinator(group, asking(ask, "leave"))


def test_a_member_that_was_removed_joins_again_and_its_offsets_are_refused(worker, cluster, group, broker):
    Admin(cluster).create_topic(group, 1)
    one = worker(b"a")
    settled(b"a", one)
    former = one.group_metadata
    with Producer(broker_list=broker.bootstrap, transactional_id=group) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({(group, 0): 4}, former)
        removed(cluster, group, former.member_id)
        until(lambda: not one.is_current)
        assert one.group_metadata == former
        producer.begin_transaction()
        with pytest.raises(TransactionFailedError) as refused:
            producer.send_offsets_to_transaction({(group, 0): 5}, one.group_metadata)
        assert refused.value.__cause__.broker_code == ErrorCode.UNKNOWN_MEMBER_ID
        producer.abort_transaction()
        settled(b"a", one)
        assert one.revoked == 1
        with producer.transaction():
            producer.send_offsets_to_transaction({(group, 0): 6}, one.group_metadata)
    assert Groups(cluster).offsets(group, [(group, 0)])[group, 0].offset == 6


def test_a_static_member_has_its_place_when_it_is_started_again(worker):
    leader = worker(b"a", group_instance_id="1")
    settled(b"a", leader)
    former = worker(b"b", group_instance_id="2")
    settled(b"a,b", leader, former)
    former.close()
    again = worker(b"b", group_instance_id="2")
    settled(b"a,b", leader, again)
    assert leader.revoked == 1
    assert again.group_metadata.generation_id == leader.group_metadata.generation_id
    assert again.group_metadata.member_id != former.group_metadata.member_id
    twin = worker(b"b", group_instance_id="2")
    settled(b"a,b", leader, twin)
    with pytest.raises(BrokerError, match=r"group\.instance\.id") as fenced:
        until(again.look, lambda _: False)
    assert fenced.value.broker_code == ErrorCode.FENCED_INSTANCE_ID
    with pytest.raises(BrokerError):
        again.poll()


def test_members_of_another_protocol_are_refused(worker):
    settled(b"a", worker(b"a"))
    with pytest.raises(BrokerError) as refused:
        worker(b"b", protocol_type="other").poll(60)
    assert refused.value.broker_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_error_of_the_assignment_is_raised_by_poll(cluster, group):
    def fail(members):
        raise ValueError(f"{len(members)} members are too few")

    with (
        GroupMember(
            cluster,
            group,
            protocol_type="test",
            protocol="share",
            metadata=b"",
            assign=fail,
            session_timeout_ms=SESSION_MS,
        ) as member,
        pytest.raises(ValueError, match="1 members are too few"),
    ):
        member.poll(60)


def test_a_member_that_was_stopped_learns_of_its_loss_and_can_t_commit(worker, cluster, group, broker):
    Admin(cluster).create_topic(group, 1)
    command = [sys.executable, str(PROCESS), broker.bootstrap, group, str(SESSION_MS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "process\n"
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "committed\n"
        process.send_signal(signal.SIGSTOP)
        other = worker(b"other")
        settled(b"other", other)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"refused {int(ErrorCode.UNKNOWN_MEMBER_ID)}\n"
        assert process.stdout.readline() == "revoked\n"
        settled(b"other,process", other)
        assert process.stdout.readline() == "other,process\n"
        process.stdin.close()
        settled(b"other", other)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_members_go_on_after_their_broker_has_started_again(worker, broker, how):
    one = worker(b"a")
    settled(b"a", one)
    two = worker(b"b")
    settled(b"a,b", one, two)
    getattr(broker, how)()
    starting = threading.Thread(target=broker.process.start)
    starting.start()
    while starting.is_alive():
        one.look(), two.look()
    starting.join()
    three = worker(b"c")
    settled(b"a,b,c", one, two, three)
