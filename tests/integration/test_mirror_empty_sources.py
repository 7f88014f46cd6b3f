"""Sources that have offsets and no records to mirror: all of it is mirrored at once, and what comes next comes, too."""

from contextlib import ExitStack
from uuid import uuid4

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.mirror import switch_over
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.settings import NewTopics, Way
from millrace_pipelines.mirror.states import States
from millrace_pipelines.mirror.status import read_status
from millrace_support.mirrored_groups import read_as_group
from millrace_support.mirrored_records import contents, read
from millrace_support.running_mirrors import QUICK, Roles

RECORDS = 6


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    with ExitStack() as stack:
        yield [
            stack.enter_context(BrokerProcess(tmp_path_factory.mktemp(one), properties=QUICK)).bootstrap
            for one in ("source", "target")
        ]


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(switch_over, "STILL_S", 0.2)


def write(bootstrap, topic, numbers):
    with Producer(broker_list=bootstrap) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=0)


def lag(roles):
    with Cluster(roles.source) as source, Cluster(roles.target) as target:
        states = [one for one in States(target).read().values() if one.source == roles.name]
        [topic] = read_status(roles.name, source, target, states).topics
    return topic.lag


@pytest.mark.parametrize("way", [Way.FOLLOW, Way.COPY])
@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "before the mirror"])
def test_a_source_without_records_to_mirror_is_mirrored(sides, way, is_deleted):
    """A group that has read them all goes on behind them."""
    name = f"t{uuid4().hex[:8]}"
    roles = Roles(f"e{name}", *sides, name, way)
    with Cluster(roles.source) as cluster:
        Admin(cluster).create_topic(name, 1)
        write(roles.source, name, range(RECORDS))
        assert len(list(read_as_group(roles.source, name, name, RECORDS))) == RECORDS
        if is_deleted:
            Admin(cluster).delete_records(name, 0)
    told = []
    settings = roles.settings(new_topics=NewTopics.BEGINNING if is_deleted else NewTopics.NOW)
    with MirrorService(settings, tell=told.append) as service:
        service.run(once=True)
    assert (told, lag(roles)) == ([], 0)
    done = roles.command("switch-over")
    assert done.exit_code == 0, done.exception
    there = f"{roles.name}.{name}"
    write(roles.target, there, range(RECORDS, RECORDS + 3))
    assert [number for _, number in read_as_group(roles.target, name, there, 3)] == [6, 7, 8]


@pytest.mark.parametrize("way", [Way.FOLLOW, Way.COPY])
def test_what_comes_behind_deleted_records_comes_along(sides, way):
    name = f"t{uuid4().hex[:8]}"
    roles = Roles(f"e{name}", *sides, name, way)
    with Cluster(roles.source) as cluster:
        Admin(cluster).create_topic(name, 1)
        write(roles.source, name, range(RECORDS))
        Admin(cluster).delete_records(name, 0)
    assert roles.once() == []
    write(roles.source, name, range(RECORDS, RECORDS + 3))
    assert roles.once() == []
    assert contents(read(roles.target, f"{roles.name}.{name}", 0)) == contents(read(roles.source, name, 0))
    assert lag(roles) == 0
