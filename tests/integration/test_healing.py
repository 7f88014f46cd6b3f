"""Replicas that heal: three real brokers, one of which has a damaged log, and gets back what the others have.

The damage is found by a verification on request, or at a start, and healed from the other replicas: at the end all logs
are equal byte for byte, no range is named any more, and a consumer reads every record.
"""

import json
import urllib.request
from itertools import islice

import pytest

from millrace.client import Admin, SimpleConsumer, SyncProducer
from millrace.errors import StorageError
from millrace.records.batch import walk
from millrace.records.record import NewRecord, decode_records
from millrace_support.admin_requests import change_request
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.waiting import until

pytestmark = pytest.mark.broker_errors(
    r"segments\.damage_search: ", r"recovery\.loading: ", r"log_cleaner: .* compaction failed"
)

TOPIC = "t"
BATCHES, RECORDS = 60, 10
SETTINGS = {**PATIENT, "log.segment.bytes": "4000", "log.index.interval.bytes": "500", "log.retention.ms": "-1"}
VALUES = [b"%d:" % offset + b"v" * (offset % 40) for offset in range(BATCHES * RECORDS)]


def flip(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def batch_of(content, number):
    return list(walk(content))[number]


def damaged(content, kind):
    """Returns a segment's content with damage of a kind in its second batch, or behind that."""
    position, header = batch_of(content, 1)
    if kind == "cut in the middle":
        return content[: position + 70]
    if kind == "emptied":
        return b""
    if kind == "zeroed block":
        return content[:position] + bytes(header.size_bytes) + content[position + header.size_bytes :]
    at = {"offset": 6, "length": 11, "leader epoch": 15, "crc": 18, "attributes": 22, "record": header.size_bytes - 2}
    return flip(content, position + at[kind])


IN_PLACE = ["offset", "length", "leader epoch", "crc", "attributes", "record", "zeroed block"]
WHILE_STOPPED = [*IN_PLACE, "cut in the middle", "emptied", "deleted"]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, zookeeper):
    """Three brokers that have the same log of several segments."""
    with broker_cluster(tmp_path_factory.mktemp("healing"), zookeeper.address, properties=SETTINGS) as cluster:
        with cluster.connect() as client:
            Admin(client).create_topic(TOPIC, 1, replication_factor=3)
            cluster.until(lambda one: len(one.isr) == 3, TOPIC)
            producer = SyncProducer(client)
            for first in range(0, BATCHES * RECORDS, RECORDS):
                producer.send(TOPIC, 0, [NewRecord(value) for value in VALUES[first : first + RECORDS]])
        cluster.equal_logs(TOPIC)
        yield cluster


def replica(cluster, role):
    """Returns the broker that leads, or one that follows."""
    leader = cluster.partition(TOPIC).leader
    return cluster.brokers[leader if role == "leader" else next(one for one in cluster.brokers if one != leader)]


def segments(broker):
    return sorted((broker.data_dir / f"{TOPIC}-0").glob("*.log"))


def verify(broker, topic=TOPIC):
    with urllib.request.urlopen(change_request(broker, "maintenance/verify"), timeout=60) as answer:
        (report,) = [one for one in json.load(answer)["partitions"] if one["topic"] == topic]
        return report


def is_healed(broker):
    return not (broker.data_dir / f"{TOPIC}-0" / "damaged-ranges").exists() and not verify(broker)["findings"]


def check_all(cluster, expected):
    """Waits until all replicas are in sync and equal byte for byte; then each of them serves every record."""
    cluster.until(lambda one: len(one.isr) == 3, TOPIC)
    assert cluster.equal_logs(TOPIC) == expected
    with cluster.connect() as client:
        read = SimpleConsumer(client).messages(TOPIC, 0, 0)
        assert [record.value for record in islice(read, len(VALUES))] == VALUES


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("kind", IN_PLACE)
def test_a_running_replica_heals_what_a_verification_finds(brokers, role, kind):
    expected = brokers.equal_logs(TOPIC)
    broker = replica(brokers, role)
    segment = segments(broker)[1]
    segment.write_bytes(damaged(segment.read_bytes(), kind))
    assert verify(broker)["findings"]
    until(lambda: is_healed(broker))
    check_all(brokers, expected)


@pytest.mark.parametrize("stop", ["kill -9", "clean stop"])
@pytest.mark.parametrize("kind", WHILE_STOPPED)
@pytest.mark.parametrize("place", ["the first segment", "a closed segment", "the newest one"])
def test_a_replica_that_was_damaged_while_it_was_stopped_heals(brokers, kind, stop, place):
    expected = brokers.equal_logs(TOPIC)
    broker = replica(brokers, "follower")
    broker.kill() if stop == "kill -9" else broker.stop()
    closed = [one for one in segments(broker) if len(list(walk(one.read_bytes()))) > 1]
    segment = closed[{"the first segment": 0, "a closed segment": 1, "the newest one": -1}[place]]
    if kind == "deleted":
        segment.unlink()
    else:
        segment.write_bytes(damaged(segment.read_bytes(), kind))
    broker.start()
    verify(broker)
    until(lambda: is_healed(broker))
    check_all(brokers, expected)


@pytest.mark.parametrize("before", ["whole", "cut in the middle", "zeroed block", "emptied"])
def test_files_of_several_segments_that_are_gone_are_made_again(brokers, before):
    expected = brokers.equal_logs(TOPIC)
    broker = replica(brokers, "follower")
    broker.stop()
    if before != "whole":
        last = segments(broker)[1]
        last.write_bytes(damaged(last.read_bytes(), before))
    for segment in segments(broker)[2:6]:
        for file in segment.parent.glob(segment.stem + ".*"):
            file.unlink()
    broker.start()
    until(lambda: is_healed(broker))
    check_all(brokers, expected)
    assert len(segments(broker)) >= 6
    for segment in segments(broker):
        begins = [position for position, _ in walk(segment.read_bytes())]
        assert max(begins, default=0) < int(SETTINGS["log.segment.bytes"]), f"{segment.name} has grown when it was full"


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_first_segments_that_are_gone_are_made_again(brokers, role):
    expected = brokers.equal_logs(TOPIC)
    broker = replica(brokers, role)
    broker.stop()
    for segment in segments(broker)[:3]:
        for file in segment.parent.glob(segment.stem + ".*"):
            file.unlink()
    broker.start()
    until(lambda: is_healed(broker))
    check_all(brokers, expected)


def test_a_follower_cuts_off_nothing_that_is_committed(brokers):
    expected = brokers.equal_logs(TOPIC)
    broker = replica(brokers, "follower")
    newest = [one for one in segments(broker) if one.stat().st_size][-1]
    logged = len(broker.read_log())
    content = newest.read_bytes()
    newest.write_bytes(flip(content, len(content) - 2))
    assert verify(broker)["findings"]
    until(lambda: is_healed(broker))
    check_all(brokers, expected)
    assert "is fetched again" not in broker.read_log()[logged:]


def test_damage_heals_that_has_hidden_the_leader_epochs(brokers):
    """The first batches are gone and the file of epochs with them, so that nothing tells of which epoch they were."""
    expected = brokers.equal_logs(TOPIC)
    broker = replica(brokers, "follower")
    broker.stop()
    segments(broker)[0].unlink()
    epochs = broker.data_dir / f"{TOPIC}-0" / "leader-epoch-checkpoint"
    before = epochs.read_bytes()
    epochs.unlink()
    broker.start()
    until(lambda: is_healed(broker))
    check_all(brokers, expected)
    until(lambda: epochs.read_bytes() == before)


def test_each_of_two_replicas_has_what_the_other_lacks(brokers):
    expected = brokers.equal_logs(TOPIC)
    followers = [one for number, one in brokers.brokers.items() if number != brokers.partition(TOPIC).leader]
    for number, broker in enumerate([*followers, replica(brokers, "leader")]):
        segment = segments(broker)[1]
        content = segment.read_bytes()
        position, header = batch_of(content, number)
        segment.write_bytes(flip(content, position + header.size_bytes - 2))
    for broker in brokers.brokers.values():
        assert verify(broker)["findings"]
    for broker in brokers.brokers.values():
        until(lambda broker=broker: is_healed(broker))
    check_all(brokers, expected)


NOWHERE = 13 * RECORDS  # where a batch begins that is damaged in all replicas


def test_a_range_that_no_replica_has_stays_damaged_and_is_named(brokers):
    expected = brokers.equal_logs(TOPIC)
    whole = {}
    for broker in brokers.brokers.values():  # what has healed may be cut into other segments
        segment = [one for one in segments(broker) if int(one.stem) <= NOWHERE][-1]
        content = segment.read_bytes()
        [end] = [position + header.size_bytes for position, header in walk(content) if header.base_offset == NOWHERE]
        whole[broker] = segment, content
        segment.write_bytes(flip(content, end - 2))
    for broker in whole:
        assert verify(broker)["findings"]
    leader = replica(brokers, "leader")
    until(lambda: "stays damaged" in leader.read_log())
    assert "no replica has offsets" in leader.read_log()
    with brokers.connect() as client, pytest.raises(StorageError):
        list(SimpleConsumer(client).messages(TOPIC, 0, 0))
    segment, content = whole[leader]
    segment.write_bytes(content)
    verify(leader)
    for broker in whole:
        until(lambda broker=broker: is_healed(broker))
    check_all(brokers, expected)


COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "segment.ms": "3600000",
}


def latest(cluster, broker, topic):
    """Returns the newest value of each key as one replica has it; None for a key that was deleted."""
    content = cluster.log_bytes(broker, topic)
    found = {}
    for position, header in walk(content):
        for record in decode_records(content[position : position + header.size_bytes]):
            found[record.key] = record.value
    return found


def compact(broker):
    for _ in range(2):  # the second pass removes tombstones
        with urllib.request.urlopen(change_request(broker, "maintenance/compaction"), timeout=60) as answer:
            answer.read()


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("compacts", ["it", "others", "each"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_compacted_log_heals_and_no_deleted_key_comes_back(brokers, role, compacts, place):
    """Compaction leaves the last batch of a segment, if need be without its records."""
    topic = f"compacted-{role}-{compacts}-{place}"
    with brokers.connect() as client:
        Admin(client).create_topic(topic, 1, replication_factor=3, config=COMPACT)
        brokers.until(lambda one: len(one.isr) == 3, topic)
        producer = SyncProducer(client)
        for number in range(200):
            key, value = b"key %d" % (number % 20), None if number % 20 < 5 and number > 100 else b"%d" % number
            producer.send(topic, 0, [NewRecord(value, key=key)])
        leader = brokers.partition(topic).leader
    damaged_id = leader if role == "leader" else next(one for one in brokers.brokers if one != leader)
    broker = brokers.brokers[damaged_id]
    for number, one in brokers.brokers.items():
        if compacts == "each" or (compacts == "it") == (number == damaged_id):
            compact(one)
    before = latest(brokers, damaged_id, topic)
    alive = {key: value for key, value in before.items() if value is not None}
    folder = broker.data_dir / f"{topic}-0"
    segment = min(folder.glob("*.log"))
    content = segment.read_bytes()
    position, header = batch_of(content, 0 if place == "first" else -1)
    segment.write_bytes(flip(content, position + header.size_bytes - 2))
    verify(broker, topic)
    until(lambda: not verify(broker, topic)["findings"])
    brokers.until(lambda one: len(one.isr) == 3, topic)
    after = latest(brokers, damaged_id, topic)
    assert {key: value for key, value in after.items() if value is not None} == alive
