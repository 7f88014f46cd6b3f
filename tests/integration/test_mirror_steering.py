"""`millrace mirror status`, `pause` and `resume`, with brokers and an instance that runs."""

import json
from contextlib import ExitStack
from uuid import uuid4

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.mirror.lags import read_lags
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import TopicState
from millrace_support.running_mirrors import QUICK, Roles
from millrace_support.waiting import until


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    with ExitStack() as stack:
        yield [
            stack.enter_context(BrokerProcess(tmp_path_factory.mktemp(one), properties=QUICK)).bootstrap
            for one in ("source", "target")
        ]


@pytest.fixture(params=[Way.FOLLOW, Way.COPY])
def roles(request, sides):
    name = f"t{uuid4().hex[:8]}"
    with Cluster(sides[0]) as source:
        for one in ("a", "b"):
            Admin(source).create_topic(f"{name}-{one}", 2)
    return Roles(f"e{name}", *sides, f"{name}-.*", request.param)


def write(roles, topic, count):
    with Producer(broker_list=roles.source) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2)


def told(roles, *arguments):
    result = roles.command("status", "--json", *arguments)
    [found] = json.loads(result.stdout)
    return {one["topic"]: one for one in found["topics"]}, found, result.exit_code


def count_at(roles, topic):
    with SimpleConsumer(roles.target) as consumer:
        return sum(1 for one in (0, 1) for _ in consumer.messages(topic, one, 0))


def test_a_paused_topic_keeps_its_place_while_others_go_on(roles):
    one, other = (roles.topics.replace(".*", each) for each in "ab")
    write(roles, one, 10)
    write(roles, other, 10)
    with roles.running() as service:
        until(lambda: service.ends() and service.stopped() == {} and told(roles)[0].get(one, {}).get("lag") == 0)
        paused = roles.command("pause", one)
        assert paused.stdout == f"{roles.name}/{one}: paused; the instance obeys\n"
        write(roles, one, 6)
        write(roles, other, 6)
        until(lambda: told(roles)[0][other]["lag"] == 0)
        topics, found, status = told(roles)
        assert (topics[one]["state"], topics[one]["lag"], found["instances"], status) == ("paused", 6, 1, 0)
        assert roles.command("resume", f"{roles.name}/{one}").stdout.endswith("resumed; the instance obeys\n")
        until(lambda: told(roles)[0][one]["lag"] == 0)
        assert (topics := told(roles)[0])[one]["state"] == "mirroring"
        assert topics[one]["newest_ms"] > 0
    assert count_at(roles, f"{roles.name}.{one}") == 16


def test_a_table_has_a_line_for_each_topic_and_partition(roles):
    write(roles, roles.topics.replace(".*", "a"), 3)
    assert roles.once() == []
    result = roles.command("status", "-v")
    lines = result.stdout.splitlines()
    assert lines[0].split()[:2] == ["topic", "target"]
    assert [line.split()[0] for line in lines[1:3]] == [f"{roles.name}/{roles.topics[:-2]}{one}" for one in "ab"]
    assert len([line for line in lines if line.startswith(f"{roles.name}/")]) == 2 + 4
    assert result.stderr == f"millrace: no instance of the mirror {roles.name} runs\n"


def test_a_partition_that_has_stopped_alone_is_shown_until_it_goes_on(roles):
    topic = roles.topics.replace(".*", "a")
    write(roles, topic, 6)
    assert roles.once() == []
    write(roles, topic, 10)
    with Cluster(roles.source) as source:
        Admin(source).delete_records(topic, 1, 5)
    [reason] = roles.once()
    assert f"{topic}-1: the source has deleted offsets 3-4" in reason
    topics, _, status = told(roles)
    assert (status, topics[topic]["state"], topics[topic]["reason"]) == (1, "mirroring", reason)
    assert [one["stopped"] for one in topics[topic]["partitions"]] == [None, reason]
    table = roles.command("status").stdout
    assert "mirroring, 1 stopped" in table
    assert reason in table
    with roles.running():
        assert roles.command("resume", topic, "--accept-lost-offsets").exit_code == 0
        until(lambda: told(roles), lambda found: (found[2], found[0][topic]["lag"]) == (0, 0))
    assert told(roles)[0][topic]["reason"] is None


def test_what_an_open_transaction_holds_back_is_no_lag_but_told(sides):
    name = f"t{uuid4().hex[:8]}"
    roles = Roles(f"e{name}", *sides, name, Way.COPY)
    with Cluster(roles.source) as source:
        Admin(source).create_topic(name, 2)
    write(roles, name, 4)
    with Producer(broker_list=roles.source, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(3):
            producer.send(name, b"open", partition=0).result()
        with roles.running() as service:
            until(lambda: told(roles)[0].get(name, {}), lambda one: (one.get("lag"), one.get("held_back")) == (0, 3))
            assert sorted(one.held_back for one in service.counters.read().values()) == [0, 3]
            assert [one["held_back"] for one in told(roles)[0][name]["partitions"]] == [3, 0]
            [lag] = read_lags(
                roles.settings(),
                [TopicState(source=roles.name, topic=name, target_topic=f"{roles.name}.{name}", way=Way.COPY)],
            ).values()
            assert (lag.lag, lag.held_back) == (0, 3)
            producer.commit_transaction()
            until(lambda: told(roles)[0][name], lambda one: (one["lag"], one["held_back"]) == (0, 0))
    assert count_at(roles, f"{roles.name}.{name}") == 7


def test_a_source_that_is_away_has_its_last_known_end(roles, tmp_path):
    with BrokerProcess(tmp_path, properties=QUICK) as source:
        there = roles._replace(name=f"{roles.name}2", source=source.bootstrap)
        topic = roles.topics.replace(".*", "a")
        with Cluster(there.source) as cluster:
            Admin(cluster).create_topic(topic, 2)
        write(there, topic, 8)
        with there.running():
            until(lambda: told(there)[0].get(topic, {}).get("lag") == 0)
    topics, found, status = told(there)
    assert status == 1
    assert found["source_error"]
    assert found["source_known_ms"] > 0
    assert [one["source_end"] for one in topics[topic]["partitions"]] == [4, 4]
    assert topics[topic]["lag"] == 0


@pytest.mark.parametrize("command", ["status", "pause", "resume"])
def test_an_unknown_topic_is_no_other_one(roles, command):
    write(roles, roles.topics.replace(".*", "a"), 3)
    roles.once()
    result = roles.command(command, roles.topics.replace(".*", "aa"))
    assert result.exit_code == 1
    assert "is not mirrored from" in str(result.exception)
    assert "did you mean" in str(result.exception)
