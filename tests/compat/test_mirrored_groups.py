"""Groups move between Millrace, Apache Kafka 3.9 and 4.1, and back: nothing is read twice, nothing is skipped."""

import random
from contextlib import ExitStack
from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_pipelines.mirror.group_side import GroupSide
from millrace_pipelines.mirror.groups import GroupMoves, Outcome
from millrace_pipelines.mirror.offset_map_topic import create_offset_map_topic
from millrace_pipelines.mirror.translation import MirroredTopic
from millrace_support.await_brokers import await_coordinators
from millrace_support.mirrored_groups import Copier, Source, read_as_group

PARTITIONS = 2
QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
pytestmark = pytest.mark.peers
PAIRS = [
    ("millrace", "3.9", "classic"),
    ("3.9", "4.1", "classic"),
    ("4.1", "millrace", "classic"),
    ("4.1", "millrace", "consumer"),
    ("millrace", "4.1", "consumer"),
]


@pytest.fixture(scope="module")
def brokers(find_peer, tmp_path_factory, request):
    """Starts each kind of broker when it is first asked for."""
    started = {}
    with ExitStack() as stack:

        def broker(kind):
            if kind not in started:
                folder = tmp_path_factory.mktemp(kind)
                if kind == "millrace":
                    started[kind] = stack.enter_context(BrokerProcess(folder, properties=QUICK))
                else:
                    address = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}"
                    kafka = KafkaBroker(
                        find_peer(kind), folder, zookeeper=address if kind == "3.9" else None, properties=QUICK
                    )
                    started[kind] = stack.enter_context(kafka)
                    await_coordinators(started[kind])
            return started[kind]

        yield broker


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request, brokers):
    source, target, protocol = request.param
    with Cluster(brokers(source).bootstrap) as one, Cluster(brokers(target).bootstrap) as other:
        yield one, other, brokers(source).bootstrap, brokers(target).bootstrap, protocol


@pytest.mark.soak(rounds=5, soak_rounds=50)
def test_a_group_that_moves_over_and_back_reads_each_record_once(pair, rounds):
    source, target, from_, to, protocol = pair
    name, chance = f"t{uuid4().hex[:8]}", random.Random(17)
    topic = MirroredTopic(name, f"east.{name}", is_followed=False)
    Admin(source).create_topic(topic.topic, PARTITIONS)
    Admin(target).create_topic(topic.target_topic, PARTITIONS)
    create_offset_map_topic(target, replication_factor=1)
    moves = GroupMoves("east", GroupSide(source), GroupSide(target), is_chosen=name.__eq__)
    filled, copier = Source(from_, topic.topic, PARTITIONS, seed=3), Copier("east", source, to, *topic[:2])
    read = {one: [] for one in range(PARTITIONS)}

    def go_on(bootstrap, where, count):
        for partition, number in read_as_group(bootstrap, name, where, count, protocol=protocol):
            read[partition].append(number)
        assert {one: filled.written[one][: len(read[one])] for one in read} == read

    def left():
        return sum(map(len, filled.written.values())) - sum(map(len, read.values()))

    for _ in rounds:
        filled.fill(6)
        go_on(from_, topic.topic, chance.randint(1, max(left() // 2, 1)))
        copier.copy(PARTITIONS)
        [moved] = moves.move([topic], is_last=True)
        assert (moved.outcome, moved.errors) == (Outcome.MOVED, ())
        filled.fill(2)
        copier.copy(PARTITIONS)
        go_on(to, topic.target_topic, chance.randint(1, left()))
        assert [one.outcome for one in moves.move([topic], is_last=True)] == [Outcome.GONE_ON]
        [back] = moves.move_back([topic])
        assert (back.outcome, back.errors) == (Outcome.MOVED, ())
    go_on(from_, topic.topic, left())
    assert read == filled.written
    filled.close()
    copier.close()
