"""Two instances share a mirror while they, the source and the target are killed: each record is at the target once."""

import random
import signal
import subprocess
import sys
import threading

import pytest

from millrace.client import Admin, Cluster, read_log_offsets
from millrace.client.fetched import IsolationLevel
from millrace.errors import MillraceError
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source, Way
from millrace_support.mirrored_records import contents, read, write, write_transactions
from millrace_support.waiting import until

PARTITIONS = 4
TOPIC = "orders"
KILLS = 8
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture
def source(tmp_path):
    with BrokerProcess(tmp_path / "source", properties=QUICK) as broker:
        yield broker


@pytest.fixture
def target(tmp_path):
    with BrokerProcess(tmp_path / "target", properties=QUICK) as broker:
        yield broker


class Instance:
    """A process of the mirror, which is started again after each kill."""

    def __init__(self, config, folder, number):
        self._command = [sys.executable, "-m", "millrace_ops", "mirror", "--config", str(config)]
        self._log = (folder / f"instance-{number}.log").open("wb")
        self.start()

    def start(self):
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)

    def kill(self):
        self._process.kill()
        self._process.wait()
        self.start()

    def end(self):
        self._process.terminate()
        assert self._process.wait(120) in (0, -signal.SIGTERM)  # the latter where it had only just been started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._log.close()


class Writer(threading.Thread):
    """Writes records and transactions until it is stopped; what a kill of the source breaks is begun again."""

    def __init__(self, bootstrap):
        super().__init__(daemon=True)
        self._address = bootstrap
        self.is_stopping = threading.Event()
        self.rounds = 0

    def run(self):
        while not self.is_stopping.is_set():
            write(self._address, TOPIC, PARTITIONS, 8, seed=self.rounds)
            write_transactions(self._address, TOPIC, PARTITIONS, "ca", seed=self.rounds)
            self.rounds += 1


def killed(broker):
    broker.kill()
    broker.start()


def settings(source, target, way):
    east = Source(name="east", bootstrap=source.bootstrap, topics=(TOPIC,))
    return MirrorSettings(target=Side(bootstrap=target.bootstrap), sources=(east,), way=way)


def config_file(source, target, way, folder):
    path = folder / "mirror.toml"
    path.write_text(
        f'way = "{way}"\ntopics = "{TOPIC}"\n[target]\nbootstrap = "{target.bootstrap}"\n'
        f'[[sources]]\nname = "east"\nbootstrap = "{source.bootstrap}"\n'
    )
    return path


def mirrored(target):
    """Returns how many offsets the mirrored topic has; -1 where that can't be told now."""
    places = [(f"east.{TOPIC}", partition) for partition in range(PARTITIONS)]
    with Cluster(target.bootstrap, timeout_s=5) as cluster:
        logs = read_log_offsets(cluster, places, IsolationLevel.READ_UNCOMMITTED).values()
    return -1 if any(isinstance(log, MillraceError) for log in logs) else sum(log.end_offset for log in logs)


def kill_at_times(target, kills):
    """Kills one after the other, in any order, each once something was mirrored since."""
    rng = random.Random(1)
    for number in range(KILLS):
        seen = until(lambda: mirrored(target), lambda end: end >= 0)
        until(lambda seen=seen: mirrored(target) > seen, pause_s=0.1)
        kills[number % len(kills)]() if number < len(kills) else rng.choice(kills)()


@pytest.mark.parametrize("way", [Way.FOLLOW, Way.COPY])
def test_kills_neither_lose_nor_double(source, target, way, tmp_path):
    with Cluster(source.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, PARTITIONS)
    config = config_file(source, target, way, tmp_path)
    writer = Writer(source.bootstrap)
    with Instance(config, tmp_path, 1) as one, Instance(config, tmp_path, 2) as other:
        writer.start()
        kill_at_times(target, [one.kill, other.kill, lambda: killed(target), lambda: killed(source)])
        writer.is_stopping.set()
        writer.join()
        one.end()
        other.end()
    with MirrorService(settings(source, target, way)) as service:
        service.run(once=True)
        assert service.stopped() == {}
    for partition in range(PARTITIONS):
        ours, theirs = (
            read(one.bootstrap, topic, partition) for one, topic in ((target, f"east.{TOPIC}"), (source, TOPIC))
        )
        assert contents(ours) == contents(theirs)
        assert way is Way.COPY or ours == theirs
