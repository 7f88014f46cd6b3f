"""What stops a partition of a mirror, and what does not: each in a mirror of two topics, of which the other goes on."""

import os
from dataclasses import replace

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, Configs, Groups, ResourceKind, SimpleConsumer
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source, Way
from millrace_pipelines.mirror.states import State, States
from millrace_support.mirrored_records import contents, read
from millrace_support.waiting import until

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "100",
}
GOOD, BAD = "good", "bad"
WAYS = pytest.mark.parametrize("way", [Way.FOLLOW, Way.COPY])


@pytest.fixture
def source(tmp_path):
    with BrokerProcess(tmp_path / "source", properties=QUICK) as broker:
        yield broker


@pytest.fixture
def target(tmp_path):
    with BrokerProcess(tmp_path / "target", properties=QUICK) as broker:
        yield broker


def send(broker, topic, count, **given):
    with Producer(broker_list=broker.bootstrap, producer_type="async", batch_size=2) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0, **given)


def create(broker, topic, **config):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1, config={name.replace("_", "."): value for name, value in config.items()})


def mirror(source, target, way, **given):
    """Mirrors once; returns the reasons of what has stopped, by topic or partition."""
    one = Source(name="east", bootstrap=source.bootstrap, topics=(".*",))
    settings = MirrorSettings(target=Side(bootstrap=target.bootstrap), sources=(one,), way=way, **given)
    with MirrorService(settings) as service:
        service.run(once=True)
        return service.stopped()


def assert_same(source, target, topic):
    assert contents(read(target.bootstrap, f"east.{topic}", 0)) == contents(read(source.bootstrap, topic, 0))


def started(source, target, way, **config):
    """Has both topics mirrored, and returns once the mirror is at the end of them."""
    create(source, GOOD)
    create(source, BAD, **config)
    send(source, GOOD, 5)
    send(source, BAD, 5)
    assert mirror(source, target, way) == {}
    send(source, GOOD, 5)


@WAYS
def test_a_compacted_topic_has_gaps(source, target, way):
    create(source, GOOD)
    create(source, BAD, cleanup_policy="compact", segment_bytes="1000", min_cleanable_dirty_ratio="0.0")
    with Producer(broker_list=source.bootstrap) as producer:
        for number in range(30):
            producer.send(BAD, b"%d" % number, key=b"%d" % (number % 3))
    until(lambda: len(read(source.bootstrap, BAD, 0)), lambda count: count < 20)
    assert mirror(source, target, way) == {}
    ours, theirs = read(target.bootstrap, f"east.{BAD}", 0), read(source.bootstrap, BAD, 0)
    newest = {record.key: record for record in theirs}
    assert {record.key: record[1:] for record in ours} == {key: record[1:] for key, record in newest.items()}


@WAYS
def test_offsets_that_were_deleted_stop_the_partition_unless_that_is_accepted(source, target, way):
    started(source, target, way)
    send(source, BAD, 6)
    with Cluster(source.bootstrap) as cluster:
        Admin(cluster).delete_records(BAD, 0, 7)
    stopped = mirror(source, target, way)
    assert "deleted offsets 5-6 before they were mirrored; --accept-lost-offsets" in stopped[f"east/{BAD}-0"]
    assert len(stopped) == 1
    assert_same(source, target, GOOD)
    assert mirror(source, target, way, accept_lost_offsets=True) == {}
    values = [one.value for one in read(target.bootstrap, f"east.{BAD}", 0)]
    assert values == [b"0", b"1", b"2", b"3", b"4", b"2", b"3", b"4", b"5"]


@WAYS
def test_a_topic_that_was_created_again_stops_unless_that_is_accepted(source, target, way):
    started(source, target, way)
    with Cluster(source.bootstrap) as cluster:
        Admin(cluster).delete_topic(BAD)
    create(source, BAD)
    send(source, BAD, 7)
    stopped = mirror(source, target, way)
    assert all("created again at the source" in reason for reason in stopped.values())
    assert len(stopped) == 1
    assert_same(source, target, GOOD)
    assert mirror(source, target, way, accept_recreated_topic=True) == {}
    values = [one.value for one in read(target.bootstrap, f"east.{BAD}", 0)]
    assert values[-7:] == [b"%d" % number for number in range(7)]


@WAYS
def test_damage_stops_the_partition_behind_what_is_intact(source, target, way):
    started(source, target, way)
    send(source, BAD, 4)
    segment = source.data_dir / f"{BAD}-0" / f"{0:020}.log"
    until(lambda: os.path.getsize(segment))
    with segment.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    stopped = mirror(source, target, way)
    assert "the source's log is damaged" in stopped[f"east/{BAD}-0"]
    assert_same(source, target, GOOD)
    values = [one.value for one in read(target.bootstrap, f"east.{BAD}", 0)]
    assert values == [b"0", b"1", b"2", b"3", b"4", b"0", b"1"][: len(values)]
    assert len(values) >= 5


def test_a_batch_that_is_too_large_stops_its_partition_alone(source, target):
    started(source, target, Way.COPY)
    with Cluster(target.bootstrap) as cluster:
        Configs(cluster).change(ResourceKind.TOPIC, f"east.{BAD}", {"max.message.bytes": "300"}, ())
    with Producer(broker_list=source.bootstrap) as producer:
        producer.send(BAD, b"x" * 1000, partition=0)
    stopped = mirror(source, target, Way.COPY, settings_deny=("max.message.bytes",))
    assert "the target refuses to take records" in stopped[f"east/{BAD}-0"]
    assert_same(source, target, GOOD)


def test_progress_that_the_group_has_lost_is_made_again_of_the_offset_map(source, target):
    """What came last is an aborted transaction, behind the last records that are mapped."""
    started(source, target, Way.COPY)
    with Producer(broker_list=source.bootstrap, transactional_id="aborts") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(BAD, b"aborted", partition=0).result()
        producer.abort_transaction()
    assert mirror(source, target, Way.COPY) == {}
    with Cluster(target.bootstrap) as cluster:
        before = Groups(cluster).offsets("millrace-mirror-east")
        Groups(cluster).delete("millrace-mirror-east")
        assert mirror(source, target, Way.COPY) == {}
        assert Groups(cluster).offsets("millrace-mirror-east") == before
        Groups(cluster).delete("millrace-mirror-east")
        send(source, BAD, 3)
        assert mirror(source, target, Way.COPY) == {}
    for topic in (GOOD, BAD):
        assert_same(source, target, topic)


def test_what_has_records_of_others_is_not_copied_into(source, target):
    started(source, target, Way.COPY)
    with Cluster(target.bootstrap) as cluster:
        Groups(cluster).delete("millrace-mirror-east")
        Admin(cluster).delete_topic("__mirror_offsets")
        end = SimpleConsumer(cluster).latest(f"east.{BAD}", 0)
        stopped = mirror(source, target, Way.COPY)
        assert "has records at the target, and this mirror has no progress there" in stopped[f"east/{BAD}-0"]
        assert SimpleConsumer(cluster).latest(f"east.{BAD}", 0) == end


def test_a_topic_that_stops_meanwhile_holds_up_no_end(source, target):
    """It is paused by a command while it is mirrored slowly; the mirror ends without it."""
    create(source, GOOD)
    create(source, BAD)
    send(source, GOOD, 5)
    with Producer(broker_list=source.bootstrap) as producer:
        for _ in range(20):
            producer.send(BAD, os.urandom(900_000), partition=0)
    one = Source(name="east", bootstrap=source.bootstrap, topics=(".*",))
    settings = MirrorSettings(target=Side(bootstrap=target.bootstrap), sources=(one,), throttle_bytes_per_s=1)
    with (
        MirrorService(settings) as service,
        Cluster(target.bootstrap) as cluster,
        Side(bootstrap=target.bootstrap).producer() as producer,
    ):
        states = States(cluster, producer)

        def pause():
            known = states.read().get(f"east/{BAD}")
            if known is not None and known.target_topic_id and known.state is State.MIRRORING and service.ends():
                states.write(
                    replace(known, state=State.PAUSED), replace(states.read()[f"east/{GOOD}"], state=State.PAUSED)
                )

        service.run(once=True, looks=pause)
        assert service.stopped() == {}
