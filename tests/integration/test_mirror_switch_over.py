"""`millrace mirror switch-over`: planned under load, interrupted at each step, and without the source."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from itertools import count
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as LibrdkafkaProducer

from millrace import Producer
from millrace.client import Admin, Cluster, Configs, Groups, ResourceKind, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.client.groups import GroupOffset
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.mirror import switch_over
from millrace_pipelines.mirror.barrier import await_instances, instances
from millrace_pipelines.mirror.group_side import GroupSide
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import State, States
from millrace_pipelines.mirror.switch_over import SwitchOver
from millrace_support.running_mirrors import QUICK, Roles
from millrace_support.waiting import until

PARTITIONS = 2
PATIENCE_S = 60


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    with ExitStack() as stack:
        yield [
            stack.enter_context(BrokerProcess(tmp_path_factory.mktemp(one), properties=QUICK)).bootstrap
            for one in ("source", "target")
        ]


def roles_of(source, target, way):
    name = f"t{uuid4().hex[:8]}"
    with Cluster(source) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
    return Roles(f"e{name}", source, target, name, way)


@pytest.fixture(params=[Way.FOLLOW, Way.COPY])
def roles(request, sides):
    return roles_of(*sides, request.param)


def mirrored(roles):
    return f"{roles.name}.{roles.topics}"


def write(bootstrap, topic, values):
    with Producer(broker_list=bootstrap) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=value % PARTITIONS)


def values(bootstrap, topic):
    committed = IsolationLevel.READ_COMMITTED
    with SimpleConsumer(bootstrap) as consumer:
        return sorted(
            int(one.value)
            for each in range(PARTITIONS)
            for one in consumer.messages(topic, each, 0, isolation=committed)
        )


def state_of(roles):
    with Cluster(roles.target) as cluster:
        return States(cluster).read().get(f"{roles.name}/{roles.topics}")


def lag_is_0(roles):
    [found] = json.loads(roles.command("status", "--json").stdout)
    return [one["lag"] for one in found["topics"]] == [0]


def offsets_of(cluster, group):
    return Groups(cluster).offsets(group).values()


def test_writers_move_under_load_and_each_record_is_there_once(roles):
    written, stopping = [], threading.Event()

    def load():
        with Producer(broker_list=roles.source) as producer:
            for value in count():
                if stopping.is_set():
                    return
                producer.send(roles.topics, b"%d" % value, partition=value % PARTITIONS)
                written.append(value)

    with roles.running():
        writer = threading.Thread(target=load)
        writer.start()
        until(lambda: len(written) > 200 and state_of(roles))
        refused = roles.command("switch-over", "--timeout", "3")
        assert refused.exit_code == 1
        assert "not switched over" in str(refused.exception)
        assert state_of(roles).state is State.MIRRORING
        stopping.set()
        writer.join()
        result = roles.command("switch-over")
        assert result.exit_code == 0, result
        state = state_of(roles)
        assert state.state is State.SWITCHED
        assert sum(state.source_ends.values()) == len(written)
        more = range(len(written), len(written) + 50)
        write(roles.target, mirrored(roles), more)
        write(roles.source, roles.topics, [10**6])
        assert "is a topic as any other" in result.stdout
        assert roles.command("switch-over").stdout.startswith("topic")
    assert values(roles.target, mirrored(roles)) == [*written, *more]


def test_an_open_transaction_is_aborted_or_awaited(roles):
    producer = LibrdkafkaProducer({"bootstrap.servers": roles.source, "transactional.id": roles.topics})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(roles.topics, b"1000", partition=0)
    producer.flush()
    write(roles.source, roles.topics, range(6))
    with roles.running():
        until(lambda: state_of(roles))
        until(lambda: lag_is_0(roles))
        result = roles.command("switch-over", "--timeout", "5")
        if roles.way is Way.COPY:
            assert "a transaction is open at the source, with 4 offsets behind its begin" in str(result.exception)
            producer.abort_transaction()
            result = roles.command("switch-over")
        else:
            assert "1 open transactions were aborted" in result.stderr
    assert result.exit_code == 0
    write(roles.target, mirrored(roles), [6, 7])
    assert values(roles.target, mirrored(roles)) == list(range(8))


def test_a_group_that_still_reads_at_the_source_stands_in_the_way(roles):
    write(roles.source, roles.topics, range(6))
    consumer = Consumer({"bootstrap.servers": roles.source, "group.id": roles.topics, "auto.offset.reset": "earliest"})
    consumer.subscribe([roles.topics])
    assert len(consumer.consume(6, PATIENCE_S)) == 6
    consumer.commit(asynchronous=False)
    with roles.running():
        until(lambda: state_of(roles))
        refused = roles.command("switch-over")
        assert f"{roles.topics}: group {roles.topics} has live members" in str(refused.exception)
        assert state_of(roles).state is State.MIRRORING
        consumer.close()
        assert roles.command("switch-over").exit_code == 0
    with Cluster(roles.target) as cluster:
        offsets = Groups(cluster).offsets(roles.topics)
    assert {one: at.offset for one, at in offsets.items()} == {(mirrored(roles), each): 3 for each in range(PARTITIONS)}


class KilledError(BaseException):
    """Stands for the end of the process."""


CALLS = ("await_instances", "end_mirroring", "Configs", "read_status", "GroupMoves")
STEPS = [(way, step) for way, steps in ((Way.FOLLOW, 14), (Way.COPY, 8)) for step in range(steps)]


@pytest.mark.parametrize(("way", "step"), STEPS)
def test_the_same_command_completes_what_was_cut_off_at_any_step(sides, way, step, monkeypatch):
    roles = roles_of(*sides, way)
    write(roles.source, roles.topics, range(6))
    roles.once()
    monkeypatch.setattr(switch_over, "STILL_S", 0.05)
    steps = count()

    def killing(function):
        def called(*arguments, **named):
            if next(steps) == step:
                raise KilledError
            return function(*arguments, **named)

        return called

    with Cluster(roles.source) as source, Cluster(roles.target) as target, Producer(broker_list=roles.target) as sent:
        states = States(target, sent)

        def switch():
            both, state = (GroupSide(source), GroupSide(target)), states.read()[f"{roles.name}/{roles.topics}"]
            [named] = roles.settings().sources
            return list(SwitchOver(named, *both, states, tell=str, timeout_s=30).run([state]))

        with monkeypatch.context() as patch:
            for one in CALLS:
                patch.setattr(switch_over, one, killing(getattr(switch_over, one)))
            patch.setattr(states, "write", killing(states.write))
            with pytest.raises(KilledError):
                switch()
        assert state_of(roles).state is not State.SWITCHED
        [switched] = switch()
    assert switched.state.source_ends == dict.fromkeys(range(PARTITIONS), 3)
    if way is Way.FOLLOW:
        assert switched.state.target_ends == dict.fromkeys(range(PARTITIONS), 4)
    write(roles.target, mirrored(roles), [6, 7])
    assert values(roles.target, mirrored(roles)) == list(range(8))


def test_an_instance_that_hangs_meanwhile_writes_nothing_afterwards(roles):
    write(roles.source, roles.topics, range(6))
    with Cluster(roles.target) as cluster:
        roles.once()  # so that the way is that of the test
        program = subprocess.Popen([sys.executable, "-m", "millrace_ops", "mirror", *roles.options()])
        try:
            until(lambda: instances(cluster, roles.name) == 1)
            write(roles.source, roles.topics, [6, 7])
            until(lambda: lag_is_0(roles))
            os.kill(program.pid, signal.SIGSTOP)
            assert roles.command("switch-over").exit_code == 0
            write(roles.source, roles.topics, range(1000, 1010))
            write(roles.target, mirrored(roles), [8, 9])
            os.kill(program.pid, signal.SIGCONT)
            until(lambda: instances(cluster, roles.name) == 1)
            await_instances(cluster, roles.name)
        finally:
            os.kill(program.pid, signal.SIGCONT)
            program.terminate()
            program.wait()
    assert values(roles.target, mirrored(roles)) == list(range(10))


@pytest.mark.parametrize("way", [Way.FOLLOW, Way.COPY])
def test_without_the_source_it_is_told_what_is_lost(sides, way, tmp_path):
    with BrokerProcess(tmp_path, properties=QUICK) as source:
        roles = roles_of(source.bootstrap, sides[1], way)
        key = f"{roles.name}/{roles.topics}"
        write(roles.source, roles.topics, range(8))
        with Cluster(roles.source) as cluster:
            Groups(cluster).commit(roles.topics, {(roles.topics, 0): GroupOffset(3, "")})
        with roles.running():
            until(lambda: state_of(roles))
            until(lambda: lag_is_0(roles))
            assert roles.command("pause").exit_code == 0
            write(roles.source, roles.topics, range(8, 13))
            with Cluster(roles.target) as cluster:
                states = States(cluster)
                until(lambda: states.read() and sum(states.known_ends()[key].ends.values()) == 13)
            with Cluster(roles.source) as at_source, Cluster(roles.target) as cluster, roles.running():
                Groups(at_source).commit(roles.topics, {(roles.topics, 0): GroupOffset(6, "")})
                until(lambda: '"source":6' in "".join(one.metadata for one in offsets_of(cluster, roles.topics)))
        source.kill()
        result = roles.command("switch-over", "--source-is-gone")
        assert result.exit_code == 0, result.exception
        had_read = f"millrace: group {roles.topics} had read {roles.topics}-0 up to offset 6 at the source"
        assert f"{had_read}, and only what lies below 4 is here: it goes on at the end\n" in result.stderr
        lines = sorted(line for line in result.stderr.splitlines() if "lost" in line)
        what = "offsets are lost that the source had by then, and whatever came later"
        assert [line.split(" (")[0] for line in lines] == [
            f"millrace: {roles.topics}-{partition}: mirrored up to offset 4; {lost} {what}"
            for partition, lost in ((0, 3), (1, 2))
        ]
        assert state_of(roles).state is State.SWITCHED
        write(roles.target, mirrored(roles), [100])
        assert values(roles.target, mirrored(roles)) == [*range(8), 100]


def test_a_source_that_is_away_needs_a_yes(roles):
    write(roles.source, roles.topics, range(4))
    roles.once()
    gone = roles._replace(source="127.0.0.1:1")
    refused = gone.command("switch-over")
    assert refused.exit_code == 1
    assert "Switch over without it?" in str(refused.exception)
    assert gone.command("switch-over", "--yes").exit_code == 0
    with Cluster(roles.target) as cluster:
        found = {one.name for one in Configs(cluster).describe(ResourceKind.TOPIC, mirrored(roles)) if one.value}
    assert "mirror.source" not in found
    write(roles.target, mirrored(roles), [4])
    assert values(roles.target, mirrored(roles)) == list(range(5))
