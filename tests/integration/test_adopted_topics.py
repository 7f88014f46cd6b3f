"""Topics that the cluster does not know any more are made again of their logs, by `millrace brokers adopt`."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from uuid import UUID, uuid4

import confluent_kafka
import pytest

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.errors import SetupError
from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.uuids import encode_id
from millrace_support.await_brokers import await_brokers
from millrace_support.broker_clusters import QUICK, BrokerCluster, broker_cluster, end
from millrace_support.broker_properties import LASTING_SESSION
from millrace_support.removals import forget_removals

TIMEOUT_S = 120
ONE_TOKEN = {"admin.token": "one for all"}
REPLICATED = {
    **LASTING_SESSION,
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    **ONE_TOKEN,
}
PROGRAM = ("-m", "millrace_broker")


@pytest.fixture
def adopt(warm_millrace):
    """Adopts a topic of some brokers: what the command prints, or the sentence that refuses."""

    def run(topic, brokers, *options, status=0):
        admin = ",".join(broker.admin_url for broker in brokers)
        command = [warm_millrace, "brokers", "adopt", topic, "--admin", admin, *options]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env=os.environ | {"MILLRACE_ADMIN_TOKEN": brokers[0].admin_token},
        )
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


def cluster_id_of(broker):
    lines = (broker.data_dir / "meta.properties").read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id="))


def restarted(stack, broker, broker_id, zookeeper, *arguments):
    """A broker on the folder of one that has ended, with another ZooKeeper and these arguments."""
    properties = {**QUICK, **REPLICATED} if zookeeper else {}
    again = BrokerProcess(
        broker.data_dir,
        zookeeper=zookeeper,
        broker_id=broker_id,
        properties=properties,
        program=(*PROGRAM, *arguments),
    )
    stack.callback(end, again)
    return again


@contextmanager
def empty_zookeeper(cluster, zookeeper):
    """The brokers of a cluster, all killed at once and started again under a ZooKeeper without data."""
    chroot, former = f"{zookeeper}/{uuid4().hex}", cluster.brokers
    for broker in former.values():
        broker.kill()
    cluster_id = cluster_id_of(former[1])
    with ExitStack() as stack:
        with pytest.raises(SetupError, match=f"--cluster-id={cluster_id} makes that cluster there again"):
            restarted(stack, former[1], 1, chroot)
        brokers = {1: restarted(stack, former[1], 1, chroot, f"--cluster-id={cluster_id}")}
        with ThreadPoolExecutor(2) as starting:
            others = {one: starting.submit(restarted, stack, former[one], one, chroot) for one in former if one != 1}
            brokers |= {one: future.result() for one, future in others.items()}
        await_brokers(set(brokers), *brokers.values())
        with pytest.raises(SetupError, match="--cluster-id=another: Invalid value, ZooKeeper has the cluster with id"):
            BrokerProcess(
                former[1].data_dir.parent / "new",
                zookeeper=chroot,
                broker_id=9,
                program=(*PROGRAM, "--cluster-id=another"),
            )
        yield BrokerCluster(brokers)


def idempotent_producer(bootstrap):
    return confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})


def produce(producer, values, topic="t"):
    """Sends values, all of which are acknowledged by all replicas in sync."""
    failed = []
    for value in values:
        producer.produce(topic, value, callback=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def consumed(bootstrap, count):
    """The values of the next records of the group, which then commits."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    values = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), TIMEOUT_S)
        assert messages, f"{len(values)} of {count} have come"
        values += [one.value() for one in messages if one.error() is None]
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def transactional_producer(bootstrap):
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(TIMEOUT_S)
    return producer


def leave_open_transaction(bootstrap):
    """Writes in a transaction that its producer does not end."""
    producer = transactional_producer(bootstrap)
    producer.begin_transaction()
    produce(producer, [b"never committed"] * 4)


def read(bootstrap, topic, partition=0):
    with Cluster(bootstrap) as cluster:
        records = SimpleConsumer(cluster).messages(topic, partition, SimpleConsumer(cluster).earliest(topic, partition))
        return [one.value for one in records]


def topics_of(bootstrap):
    with Cluster(bootstrap) as cluster:
        return {one.name: one.topic_id for one in cluster.metadata(None).topics.values()}


def test_zookeeper_loses_its_data(tmp_path, zookeeper, adopt):
    before, later = [b"%d" % one for one in range(300)], [b"later %d" % one for one in range(100)]
    with broker_cluster(tmp_path, zookeeper.address, properties=REPLICATED) as cluster:
        with Cluster(cluster.bootstrap) as client:
            Admin(client).create_topic("t", 2, replication_factor=3)
        produce(idempotent_producer(cluster.bootstrap), before)
        first = consumed(cluster.bootstrap, 120)
        topic_id = topics_of(cluster.bootstrap)["t"]
        leave_open_transaction(cluster.bootstrap)
        with empty_zookeeper(cluster, zookeeper.address) as again:
            brokers = list(again.brokers.values())
            assert topics_of(again.bootstrap) == {}
            assert "broker(s) 3 are alive and not among --admin" in adopt("t", brokers[:2], "--yes", status=1)
            plan = json.loads(adopt("t", brokers, "--dry-run", "--json"))
            assert [sorted(one["replicas"]) for one in plan["partitions"]] == [[1, 2, 3]] * 2
            assert "--yes confirms it" in adopt("t", brokers, status=1)
            assert topics_of(again.bootstrap) == {}

            early = idempotent_producer(again.bootstrap)
            produce(early, [b"early"], "other")
            for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC, "t"):
                assert f"topic {topic} is adopted with the id" in adopt(topic, brokers, "--yes")
            for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC, "t", "other"):
                again.until_known(topic)
            assert topics_of(again.bootstrap)["t"] == topic_id
            assert len(again.all_in_sync()) == 4 + 4 + 2 + 1
            transactional_producer(again.bootstrap)
            assert again.partition("t").leader_epoch >= plan["leader_epoch"]
            produce(early, later[:50])
            produce(idempotent_producer(again.bootstrap), later[50:])
            rest = consumed(again.bootstrap, len(before) - len(first) + len(later))
            assert sorted(first + rest) == sorted(before + later)
            for index in range(2):
                again.equal_logs("t", index)
            assert f"topic t exists, with the id {encode_id(topic_id)}" in adopt("t", brokers, "--yes", status=1)


@pytest.mark.broker_errors(r"t-0 of the topic with id \S+ is not served: there is the log of the topic of this name")
def test_a_topic_was_deleted_and_made_again_while_a_broker_was_away(tmp_path, zookeeper, adopt, warm_millrace):
    def millrace(*arguments):
        command = [warm_millrace, *arguments, "--bootstrap", cluster.bootstrap]
        subprocess.run(command, check=True, timeout=TIMEOUT_S, capture_output=True)

    with broker_cluster(tmp_path, zookeeper.address, ids=(1, 2), properties=LASTING_SESSION | ONE_TOKEN) as cluster:
        first, second = cluster.brokers[1], cluster.brokers[2]
        with Cluster(cluster.bootstrap) as client:
            Admin(client).create_topic("t", 1, replication_factor=2)
            cluster.until(lambda one: len(one.isr) == 2, "t")
            SyncProducer(client).send("t", 0, [NewRecord(b"former %d" % one) for one in range(3)], acks=-1)
        second.stop()
        await_brokers({1}, first)
        millrace("topics", "reassign", "t", "--brokers", "1", "--replication-factor", "1")
        millrace("topics", "delete", "t")
        first.stop()
        forget_removals(cluster.zookeeper, 2, "t", 0)
        first.start()
        second.start()
        await_brokers({1, 2}, first, second)

        millrace("topics", "create", "t", "--replication-factor", "2")
        assert "topic t exists, with the id" in adopt("t", [first, second], "--yes", status=1)
        millrace("topics", "delete", "t")
        adopt("t", [first, second], "--yes", "--config", "retention.ms=-1")
        partition = cluster.until(lambda one: one.leader == 2, "t")
        assert (list(partition.replicas), list(partition.isr)) == ([2], [2])
        assert read(cluster.bootstrap, "t") == [b"former %d" % one for one in range(3)]


def lose_metadata(broker):
    """Stops a broker that has no ZooKeeper, and removes its metadata."""
    broker.stop()
    (broker.data_dir / "metadata.json").unlink()


def test_a_broker_alone_loses_its_metadata(tmp_path, adopt):
    with ExitStack() as stack:
        former = stack.enter_context(BrokerProcess(tmp_path / "broker"))
        with Cluster(former.bootstrap) as client:
            Admin(client).create_topic("t", 3)
            for index in range(3):
                SyncProducer(client).send("t", index, [NewRecord(b"of %d" % index)])
        lose_metadata(former)
        with pytest.raises(SetupError, match="--cluster-id="):
            former.start()
        shutil.rmtree(former.data_dir / "t-1")
        other_id = encode_id(UUID(int=7))
        metadata = former.data_dir / "t-2" / "partition.metadata"
        former_id = metadata.read_text(encoding="utf-8").splitlines()[1].removeprefix("topic_id: ")
        metadata.write_text(f"version: 0\ntopic_id: {other_id}\n", encoding="utf-8")

        broker = restarted(stack, former, 1, None, f"--cluster-id={cluster_id_of(former)}")
        refused = adopt("t", [broker], "--yes", status=1)
        assert f"with the id {former_id} on broker(s) 1" in refused
        assert f"with the id {other_id} on broker(s) 1" in refused
        chosen = ("--topic-id", former_id, "--partitions", "2")
        assert "no log of partition(s) 1 can be adopted" in adopt("t", [broker], *chosen, status=1)
        accepted = (*chosen, "--accept-loss")
        assert "begins empty" in adopt("t", [broker], *accepted, "--dry-run")
        assert topics_of(broker.bootstrap) == {}
        adopt("t", [broker], *accepted, "--yes")
        assert [read(broker.bootstrap, "t", index) for index in range(2)] == [[b"of 0"], []]
        produce(idempotent_producer(broker.bootstrap), [b"new %d" % one for one in range(20)])
        broker.restart()
        assert len(read(broker.bootstrap, "t", 0)) + len(read(broker.bootstrap, "t", 1)) == 21
