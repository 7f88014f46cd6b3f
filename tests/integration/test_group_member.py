"""Members of a group go on when their coordinator is silent, or gone and another broker takes its place."""

import contextlib
import signal

import pytest

from millrace.client import Cluster
from millrace.client.group_member import GroupMember
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.broker_clusters import broker_cluster
from millrace_support.coordinating_brokers import REPLICATED
from millrace_support.raw import RawConnection
from millrace_support.waiting import until

PROPERTIES = {**REPLICATED, "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}
GROUP = "workers"


@pytest.fixture
def brokers(tmp_path, zookeeper):
    with broker_cluster(tmp_path, zookeeper.address, properties=PROPERTIES) as started:
        yield started


def coordinator_of(brokers):
    for broker in brokers.brokers.values():
        with contextlib.suppress(OSError), RawConnection(broker.bootstrap) as raw:
            found = raw.request(ApiKey.FIND_COORDINATOR, 1, {"key": GROUP, "key_type": 0})
            if not found.error_code:
                return found.node_id
    return None


def share(members):
    return dict.fromkeys(members, b",".join(sorted(members.values())))


def settled(assignment, members, held):
    def look():
        for member in members:
            held[member] = member.poll(0.02) or held.get(member)
        return {held[member] for member in members}

    until(look, {assignment}.__eq__)


def test_members_go_on_when_their_coordinator_is_killed(brokers):
    common = {"protocol_type": "test", "protocol": "share", "assign": share, "session_timeout_ms": 6000}
    with Cluster(brokers.bootstrap) as cluster, contextlib.ExitStack() as opened:
        held = {}
        members = [opened.enter_context(GroupMember(cluster, GROUP, metadata=name, **common)) for name in (b"a", b"b")]
        settled(b"a,b", members, held)
        former = until(lambda: coordinator_of(brokers))
        brokers.all_in_sync()
        brokers.crash(former)
        members.append(opened.enter_context(GroupMember(cluster, GROUP, metadata=b"c", **common)))
        settled(b"a,b,c", members, held)
        assert until(lambda: coordinator_of(brokers), lambda found: found not in (None, former))


def test_a_member_whose_broker_is_silent_counts_its_assignment_as_lost_before_anyone_says_so(tmp_path):
    alone = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}
    common = {"protocol_type": "test", "protocol": "share", "assign": share, "session_timeout_ms": 1000}
    revoked = []
    with (
        BrokerProcess(tmp_path / "broker", properties=alone) as broker,
        Cluster(broker.bootstrap) as cluster,
        GroupMember(cluster, GROUP, metadata=b"a", on_revoked=lambda: revoked.append(1), **common) as member,
    ):
        settled(b"a", [member], {})
        former = member.group_metadata
        broker.send_signal(signal.SIGSTOP)
        until(lambda: not member.is_current)
        assert member.poll() is None
        assert revoked == [1]
        assert member.group_metadata == former
        broker.send_signal(signal.SIGCONT)
        settled(b"a", [member], {})
        assert member.is_current
