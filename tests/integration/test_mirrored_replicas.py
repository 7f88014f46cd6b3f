"""Mirrored topics with three replicas: whatever happens to their leader, the log is that of the source everywhere."""

import shutil
from collections.abc import Iterator
from contextlib import suppress

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.mirrored_appends import end_mirroring
from millrace.errors import MillraceError, OffsetOutOfRangeError
from millrace.records.batch import walk
from millrace.records.record import NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace_support.broker_clusters import PATIENT, CrashingCluster, broker_cluster
from millrace_support.committed_topics import PROPERTIES, transactional
from millrace_support.mirrored_topics import Mirror, append, batches, create_mirrored, log_of
from millrace_support.waiting import awaited

TRANSACTIONS = 40


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("source"), properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, zookeeper) -> Iterator[CrashingCluster]:
    with broker_cluster(tmp_path_factory.mktemp("targets"), zookeeper.address, properties=PATIENT) as cluster:
        yield cluster


def fill(bootstrap: str, topic: str) -> None:
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1)
    with transactional(bootstrap, f"writes-{topic}") as producer:
        for index in range(TRANSACTIONS):
            producer.begin_transaction()
            for _ in range(5):
                producer.send(topic, f"value {index}".encode() * 50, partition=0)
            producer.abort_transaction() if index % 3 else producer.commit_transaction()


def test_followers_have_the_same_bytes_after_their_leader_was_killed(source, brokers):
    """The mirror goes on where the new leader's log ends, wherever that is."""
    fill(source.bootstrap, "killed")
    with brokers.connect() as target:
        create_mirrored(target, "killed", replicas=3, min_insync_replicas="2")
        brokers.all_in_sync()
        mirror = Mirror(source.bootstrap, target, "killed", max_bytes=1000)
        with SimpleConsumer(source.bootstrap) as consumer:
            end = consumer.latest("killed", 0)
            for _ in range(10):
                mirror.step(consumer)
            leader = brokers.partition("killed").leader
            brokers.crash(leader)

            def is_done() -> bool | None:
                with suppress(MillraceError):
                    return mirror.step(consumer).end_offset == end or None
                return None

            awaited(is_done, "the mirror has all")
            brokers.brokers[leader].start()
            brokers.all_in_sync()
        whole = brokers.equal_logs("killed")
        expected = log_of(source.bootstrap, "killed")
        assert [data for _, data in batches(whole)] == expected
        assert len({header.partition_leader_epoch for _, header in walk(whole)}) > 1
        end_mirroring(target, "killed", 0)
        whole = brokers.equal_logs("killed")
        assert [data for _, data in batches(whole)][:-1] == expected


def test_followers_begin_where_the_leader_begins(source, brokers):
    fill(source.bootstrap, "begun")
    with Cluster(source.bootstrap) as cluster:
        Admin(cluster).delete_records("begun", 0, 33)
    with brokers.connect() as target:
        create_mirrored(target, "begun", replicas=3)
        brokers.all_in_sync()
        log = Mirror(source.bootstrap, target, "begun").run()
        assert log.error is None
        whole = brokers.equal_logs("begun")
        assert [data for _, data in batches(whole)] == log_of(source.bootstrap, "begun")
        with SimpleConsumer(brokers.bootstrap) as consumer:
            awaited(lambda: consumer.latest("begun", 0) == log.end_offset or None, "all of it is committed")
            assert consumer.earliest("begun", 0) == 33
        leader = brokers.partition("begun").leader
        brokers.crash(leader)
        brokers.until(lambda one: one.leader not in {leader, -1}, "begun")
        brokers.brokers[leader].start()
        brokers.all_in_sync()
        assert brokers.equal_logs("begun") == whole
        with SimpleConsumer(brokers.bootstrap) as consumer:
            assert consumer.earliest("begun", 0) == 33


def test_followers_leave_out_what_the_source_leaves_out(brokers):
    """Also one that begins again, whose leader has to tell it of the gaps."""
    with brokers.connect() as target:
        create_mirrored(target, "gaps", replicas=3)
        brokers.all_in_sync()
        end = 0
        for offset in (5, 6, 90, 4000, 4001, 70_000):
            batch = encode_batch([NewRecord(b"%d" % offset)], base_offset=offset)
            log = append(target, "gaps", end, batch)
            assert log.error is None
            end = log.end_offset
        whole = brokers.equal_logs("gaps")
        assert [header.base_offset for _, header in walk(whole)] == [5, 6, 90, 4000, 4001, 70_000]
        follower = next(each for each in brokers.brokers if each != brokers.partition("gaps").leader)
        brokers.crash(follower)
        shutil.rmtree(brokers.brokers[follower].data_dir / "gaps-0")
        brokers.brokers[follower].start()
        brokers.all_in_sync()
        assert brokers.equal_logs("gaps") == whole


def test_the_end_of_mirroring_outlives_its_leader(source, brokers):
    """It is answered only once a second replica has it."""
    with brokers.connect() as target:
        create_mirrored(target, "ended", replicas=3, min_insync_replicas="2")
        brokers.all_in_sync()
        fill(source.bootstrap, "ended")
        end = Mirror(source.bootstrap, target, "ended").run().end_offset
        assert end_mirroring(target, "ended", 0) == end + 1
        leader = brokers.partition("ended").leader
        brokers.crash(leader)
        brokers.until(lambda one: one.leader not in {leader, -1}, "ended")
        assert end_mirroring(target, "ended", 0) == end + 1
        assert isinstance(append(target, "ended", end, b"").error, OffsetOutOfRangeError)
        brokers.brokers[leader].start()
        brokers.all_in_sync()
        brokers.equal_logs("ended")
