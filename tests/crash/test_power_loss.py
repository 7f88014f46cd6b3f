"""Real power loss: a real broker on a file system that drops what was not synced keeps the promise of its flush policy.

Each cut comes at a random moment of producing; the broker starts again on what the kernel has left. Of the records that
were acknowledged, at most M-1 per partition may be lost with flush.messages=M, none with M=1. With flush.ms those
may be lost that were acknowledged after the last flushes of all logs began; the broker counts its flushes, which its
own timer begins. What is left is a prefix, byte for byte. An acknowledgement after the cut began does not count: a sync
that runs during the cut may report success (`millrace_support.power_cut`).
"""

import json
import os
import random
import re
import subprocess
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field, replace

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.errors import SetupError
from millrace.testing.broker import BrokerProcess
from millrace_support.admin_requests import change_request
from millrace_support.power_cut import PowerCutDisk

# Until the broker is killed, writes fail, or the file system has become read-only.
pytestmark = pytest.mark.broker_errors(r"/disk/data\S*: .*(Input/output error|Read-only file system)")

CUTS = 3
PARTITIONS = 3
TOPIC = "events"
BASE_TIMESTAMP_MS = 1_700_000_000_000
SMALL_SEGMENTS = {"log.segment.bytes": "30000", "log.index.interval.bytes": "500"}
PATIENCE_S = 240
FLUSHES = re.compile(r"^millrace_log_flush_seconds_count\{.*\} (\d+)", re.MULTILINE)
LOOK_INTERVAL_S = 0.2
# Each log is flushed again 300 ms after its last flush, looked for every 100 ms: so many flushes include each log.
ENOUGH_FLUSHES = 5 * PARTITIONS


@dataclass(frozen=True)
class Promise:
    """What a flush policy lets a power cut take: acknowledged records of a partition, or those since the last flushes.

    Long producing is limited by `records_per_s`, as each record is read after every cut; a soak has no limit.
    """

    properties: dict[str, str]
    max_lost: float = float("inf")
    is_timed: bool = False
    max_produce_s: float = 1.0
    records_per_s: float = float("inf")


EVERY_MESSAGE = Promise({**SMALL_SEGMENTS, "log.flush.interval.messages": "1"}, max_lost=0)
EVERY_50_MESSAGES = Promise({**SMALL_SEGMENTS, "log.flush.interval.messages": "50"}, max_lost=49)
EVERY_300_MS = Promise(
    {"log.segment.bytes": "150000", "log.flush.interval.ms": "300", "log.flush.scheduler.interval.ms": "100"},
    is_timed=True,
    max_produce_s=8.0,
    records_per_s=3000,
)
NOISE = random.Random(0).randbytes(8192)


def record(number):
    """Returns (key, value, timestamp, headers) of the record with this number."""
    start = number * 31 % 7000
    value = b"%d:" % number + NOISE[start : start + number * 37 % 400]
    return b"key-%d" % number, value, BASE_TIMESTAMP_MS + number, [("number", b"%d" % number)]


@dataclass
class Acknowledged:
    """`numbers[partition][offset]` and when it was acknowledged (monotonic seconds), over all cuts of one disk."""

    numbers: dict[int, dict[int, tuple[int, float]]] = field(default_factory=lambda: defaultdict(dict))
    sent: int = 0
    count: int = 0

    def delivered(self, error, message):
        if error is None:
            number = int(message.key().removeprefix(b"key-"))
            self.numbers[message.partition()][message.offset()] = (number, time.monotonic())
            self.count += 1


class FlushWatch:
    """Asks a broker again and again how many flushes of logs it has done."""

    def __init__(self, broker):
        self.url = f"{broker.admin_url}/metrics"
        self.looks = []
        self.look()

    def look(self):
        asked_s = time.monotonic()
        with urllib.request.urlopen(self.url, timeout=PATIENCE_S) as answer:
            counts = FLUSHES.findall(answer.read().decode())
        self.looks.append((asked_s, sum(map(int, counts))))

    def look_now_and_then(self):
        if time.monotonic() > self.looks[-1][0] + LOOK_INTERVAL_S:
            self.look()

    def flushed_s(self):
        """Returns a time before which all that was acknowledged is flushed; None where none is known yet."""
        last_count = self.looks[-1][1]
        return max((asked_s for asked_s, count in self.looks if count + ENOUGH_FLUSHES <= last_count), default=None)


def produce_until(producer, acknowledged, deadline, records_per_s, watch=None):
    """Produces until the deadline, and until a record is acknowledged and, with a watch, some are flushed."""
    start_s, sent_before, count_before = time.monotonic(), acknowledged.sent, acknowledged.count

    def has_come_far():
        return acknowledged.count > count_before and (watch is None or watch.flushed_s() is not None)

    while (now_s := time.monotonic()) < deadline or not has_come_far():
        assert now_s < start_s + PATIENCE_S, "nothing is acknowledged, or nothing is flushed"
        if watch is not None:
            watch.look_now_and_then()
        if acknowledged.sent - sent_before > (now_s - start_s) * records_per_s:
            producer.poll(0.005)
            continue
        key, value, timestamp, headers = record(acknowledged.sent)
        partition = acknowledged.sent % PARTITIONS
        acknowledged.sent += 1
        producer.produce(
            TOPIC, value, key, partition, timestamp=timestamp, headers=headers, on_delivery=acknowledged.delivered
        )
        producer.poll(0 if len(producer) < 100 else 0.01)


def new_producer(bootstrap, chance):
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "retries": 0,
            "linger.ms": chance.choice([0, 1, 5]),
            "batch.num.messages": chance.randint(1, 60),
            "compression.type": chance.choice(["none", "lz4"]),
            "log_level": 2,
        }
    )


def read_partition(bootstrap, partition):
    """Returns (key, value, timestamp, headers) of each record; the index is the offset."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "check.crcs": True, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found = []
    while True:
        message = consumer.poll(60)
        assert message is not None, f"nothing more after {len(found)} records"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            break
        assert message.offset() == len(found)
        found.append((message.key(), message.value(), message.timestamp()[1], message.headers()))
    consumer.close()
    return found


def check_survivors(broker, acknowledged, promise, cut_s, flushed_s):
    """Checks that records are left in order; returns how many acknowledged ones are lost, and the age of the oldest."""
    losses, oldest_s = 0, 0.0
    for partition in range(PARTITIONS):
        found = read_partition(broker.bootstrap, partition)
        numbers = [int(key.removeprefix(b"key-")) for key, *_ in found]
        assert numbers == sorted(set(numbers))
        assert found == [record(number) for number in numbers]
        known = acknowledged.numbers[partition]
        assert all(numbers[offset] == number for offset, (number, _) in known.items() if offset < len(found))
        gone = [known.pop(offset)[1] for offset in list(known) if offset >= len(found)]
        lost = [acknowledged_s for acknowledged_s in gone if acknowledged_s < cut_s]
        assert len(lost) <= promise.max_lost
        assert flushed_s is None or min(lost, default=cut_s) >= flushed_s
        losses, oldest_s = losses + len(lost), max(oldest_s, cut_s - min(lost, default=cut_s))
    request = change_request(broker, "maintenance/verify")
    with urllib.request.urlopen(request, timeout=60) as answer:
        reports = json.load(answer)["partitions"]
    assert len(reports) >= PARTITIONS  # the topic of committed offsets may be there too
    assert [report for report in reports if report["findings"]] == []
    return losses, oldest_s


def cut_power_while_producing(disk, promise, chance, cuts=CUTS):
    """Cuts one disk several times; returns how many records were acknowledged and lost, and the age of the oldest."""
    acknowledged, losses, oldest_s = Acknowledged(), 0, 0.0
    with BrokerProcess(disk.path / "data", properties=promise.properties) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS)
        for _ in range(cuts):
            producer = new_producer(broker.bootstrap, chance)
            watch = FlushWatch(broker) if promise.is_timed else None
            deadline = time.monotonic() + chance.uniform(0.1, promise.max_produce_s)
            produce_until(producer, acknowledged, deadline, promise.records_per_s, watch)
            flushed_s = None if watch is None else watch.flushed_s()
            cut_s = time.monotonic()
            disk.cut_power()
            broker.kill()
            producer.purge()
            producer.flush(5)
            disk.restore()
            broker.start()
            lost, age_s = check_survivors(broker, acknowledged, promise, cut_s, flushed_s)
            losses, oldest_s = losses + lost, max(oldest_s, age_s)
        broker.stop()
    return acknowledged.count, losses, oldest_s


@pytest.fixture
def new_disk(tmp_path):
    """Makes a disk; the test is skipped where there can be none."""

    def make():
        try:
            return PowerCutDisk(tmp_path / "disk")
        except SetupError as error:
            pytest.skip(str(error))

    return make


@pytest.mark.soak(rounds=1, minutes=1)
@pytest.mark.parametrize(
    "promise", [EVERY_MESSAGE, EVERY_50_MESSAGES, EVERY_300_MS], ids=["message", "50 messages", "300 ms"]
)
def test_the_flush_promise_holds_when_the_power_goes(new_disk, rounds, promise, record_property, pytestconfig):
    if pytestconfig.getoption("--soak"):
        promise = replace(promise, records_per_s=float("inf"))
    total, losses, oldest_s, cuts = 0, 0, 0.0, 0
    for seed in rounds:
        with new_disk() as disk:
            acknowledged, lost, age_s = cut_power_while_producing(disk, promise, random.Random(seed))
        total, losses, oldest_s, cuts = total + acknowledged, losses + lost, max(oldest_s, age_s), cuts + CUTS
    record_property("cuts", cuts)
    record_property("acknowledged", total)
    record_property("lost", losses)
    record_property("age of the oldest lost", f"{oldest_s * 1000:.0f} ms")
    assert total > CUTS


def test_without_a_flush_policy_the_power_cut_takes_what_was_acknowledged(new_disk):
    """Shows that the flush policies keep the promises above, and not the disk."""
    with new_disk() as disk:
        _, lost, _ = cut_power_while_producing(disk, Promise(SMALL_SEGMENTS), random.Random(1), cuts=2)
    assert lost > 0


def test_the_disk_forgets_what_was_not_synced(new_disk):
    with new_disk() as disk:
        for name in ("synced", "grown", "renamed"):
            (disk.path / name).write_bytes(b"synced")
            with (disk.path / name).open("rb") as file:
                os.fsync(file.fileno())
        (disk.path / "grown").write_bytes(b"synced and grown")
        (disk.path / "renamed").rename(disk.path / "new name")
        (disk.path / "created").write_bytes(b"created")
        disk.cut_power()
        with pytest.raises(OSError, match="Input/output error"):
            (disk.path / "late").write_bytes(b"late")
        disk.restore()
        left = {file.name: file.read_bytes() for file in disk.path.iterdir() if file.is_file()}
    assert left == {"synced": b"synced", "grown": b"synced", "renamed": b"synced"}


def test_a_disk_is_restored_though_another_mount_namespace_has_it_still(new_disk):
    """The test of a small disk has one, and may run beside this test."""
    with new_disk() as disk:
        command = ["unshare", "--mount", "sh", "-c", "echo; read -r _"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as beside:
            assert beside.stdout.readline()
            disk.cut_power()
            disk.restore()
            (disk.path / "written").write_bytes(b"again")
            beside.communicate()
