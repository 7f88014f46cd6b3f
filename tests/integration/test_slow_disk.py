"""A disk whose syncs do not end: what waits for them waits, and nothing else does."""

import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.errors import MillraceError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.waiting import until

SLOW, FAST = "slow", "fast"
RECORDS = [NewRecord(b"v")]
HELD_DOOR = """
import os, sys, time
from pathlib import Path
from millrace.fs import OsFileSystem

fsync, held, entered, broken = OsFileSystem.fsync, *map(Path, {files!r})


def slow(self, fd):
    if "/slow-" in os.readlink(f"/proc/self/fd/{{fd}}"):
        while held.exists():
            entered.touch()
            time.sleep(0.01)
        if broken.exists():
            raise OSError(5, "Input/output error")
    return fsync(self, fd)


OsFileSystem.fsync = slow
from millrace_broker.__main__ import main
sys.exit(main())
"""


class Disk:
    """The door of a broker's disk: while `held` is there, no sync of the slow topic ends."""

    def __init__(self, tmp_path):
        self.held, self.entered, self.broken = (tmp_path / name for name in ("held", "entered", "broken"))
        files = [str(one) for one in (self.held, self.entered, self.broken)]
        self.program = "-c", HELD_DOOR.format(files=files)

    @contextmanager
    def holding(self):
        """Lets no sync of the slow topic end within the context."""
        self.held.touch()
        try:
            yield
        finally:
            self.held.unlink()

    def until_held(self):
        until(self.entered.exists)


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path)


@contextmanager
def served(tmp_path, disk, properties, config):
    with BrokerProcess(tmp_path / "data", program=disk.program, properties=properties) as process:
        with Cluster(process.bootstrap) as cluster:
            Admin(cluster).create_topic(SLOW, 1, config=config)
            Admin(cluster).create_topic(FAST, 1)
        assert sent(process, SLOW, 1) == 0  # and the leader's epoch is written
        yield process


@pytest.fixture
def broker(tmp_path, disk):
    with served(tmp_path, disk, {}, {"flush.messages": "1"}) as process:
        yield process


def sent(broker, topic, acks, timeout_s=60):
    with Cluster(broker.bootstrap, timeout_s=timeout_s) as cluster:
        return SyncProducer(cluster).send(topic, 0, RECORDS, acks=acks)


def check_others_are_served(broker, acks=-1):
    assert sent(broker, FAST, acks) >= 0
    with Cluster(broker.bootstrap) as cluster:
        assert {SLOW, FAST} <= set(Admin(cluster).topics())
    with urllib.request.urlopen(f"{broker.admin_url}/healthz") as answer:
        assert answer.status == 200


def seen(broker):
    """Up to where a consumer sees the slow topic."""
    with Cluster(broker.bootstrap) as cluster:
        return SimpleConsumer(cluster).fetch(SLOW, 0, 0).high_watermark


@pytest.mark.parametrize("acks", [1, -1])
def test_a_sync_stops_nobody_but_its_own_writers(broker, disk, acks):
    with ThreadPoolExecutor(1) as pool:
        with disk.holding():
            waiting = pool.submit(sent, broker, SLOW, acks)
            disk.until_held()
            check_others_are_served(broker)
            assert not waiting.done()
            assert seen(broker) == 1
        assert waiting.result() == 1
    assert seen(broker) == 2


@pytest.mark.broker_errors(r"storage\.failures: \S+ is offline: \S+\.log: Input/output error")
@pytest.mark.parametrize("acks", [1, -1])
def test_a_sync_that_fails_is_told_to_whoever_waits(broker, disk, acks):
    disk.broken.touch()
    with ThreadPoolExecutor(1) as pool:
        with disk.holding():
            waiting = pool.submit(sent, broker, SLOW, acks, timeout_s=2)
            disk.until_held()
        with pytest.raises(MillraceError, match="Input/output error"):
            waiting.result()


def test_the_only_replica_commits_what_is_synced_where_that_is_asked_for(tmp_path, disk):
    properties = {"single.replica.sync.enable": "true"}
    with served(tmp_path, disk, properties, {}) as broker, ThreadPoolExecutor(1) as pool:
        until(lambda: seen(broker) == 1)
        with disk.holding():
            waiting = pool.submit(sent, broker, SLOW, -1)
            disk.until_held()
            assert sent(broker, SLOW, 1) == 2
            check_others_are_served(broker, acks=1)
            assert not waiting.done()
            assert seen(broker) == 1
        assert waiting.result() == 1
    assert disk.entered.exists()


def checkpointed(data_dir):
    """The high watermarks that the next start knows of the partitions in a data directory."""
    path = data_dir / "replication-offset-checkpoint"
    entries = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return [int(offset) for _, _, offset in entries]


def test_a_slow_data_directory_holds_up_no_checkpoint_of_another(tmp_path, disk):
    slow, fast = tmp_path / "slow-one", tmp_path / "two"
    properties = {"replica.high.watermark.checkpoint.interval.ms": "50"}
    with BrokerProcess(slow, more_data_dirs=[fast], program=disk.program, properties=properties) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic(FAST, 2)
        until((slow / "admin.address").exists)  # with which the start ends
        with Cluster(broker.bootstrap) as cluster, disk.holding():
            for data_dir in slow, fast:
                [place] = data_dir.glob(f"{FAST}-*")
                SyncProducer(cluster).send(FAST, int(place.name.rsplit("-", 1)[1]), RECORDS)
                disk.until_held()
            until(lambda: checkpointed(fast) == [1])
