"""Consume, transform, produce, while the broker and the clients are killed: the output is the input, exactly once.

Each client copies a topic of its own (`copiers/`), all at once, and is started again whenever it ends. One round kills
the broker or one client at a random moment after all have copied something; 200 kills are enough.
"""

import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from itertools import count, islice
from pathlib import Path

import pytest
from confluent_kafka import Producer
from copying import PARTITIONS, PATIENCE_S, Copier, Reader

from millrace.client import Admin, Cluster
from millrace.errors import SetupError
from millrace.java import find_java
from millrace.records.batch import walk
from millrace.records.control import decode_marker
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import find_kafka

COPIERS = Path(__file__).parent / "copiers"
AT_ONCE = 6
AT_MOST_AHEAD = 300
PAUSE_S = 0.1
MOST_KILLS = 200
PROPERTIES = {
    "log.flush.interval.messages": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


class Feeder(threading.Thread):
    """Sends numbers to all sources, each once and never far ahead of the slowest copy, until it is stopped."""

    def __init__(self, bootstrap, reader):
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.reader, self.sent, self.stopping = reader, 0, threading.Event()

    def run(self):
        while not self.stopping.wait(PAUSE_S):
            self.producer.poll(0)
            if self.sent - min(self.reader.counts.values()) > AT_MOST_AHEAD:
                continue
            for number in range(self.sent + 1, self.sent + 1 + AT_ONCE):
                for name in self.reader.names:
                    self.producer.produce(f"{name}-in", b"%d" % number, partition=number % PARTITIONS)
            self.sent += AT_ONCE

    def stop(self):
        self.stopping.set()
        self.join()
        assert self.producer.flush(PATIENCE_S) == 0

    def expected(self):
        """Returns, for each partition, the list of all numbers that were sent."""
        return [[number for number in range(1, self.sent + 1) if number % PARTITIONS == at] for at in range(PARTITIONS)]


def commands(bootstrap, folder):
    """Returns the command of each client that is installed, by its name."""
    found = {
        name: [sys.executable, str(COPIERS / f"copy_with_{name}.py"), bootstrap, name]
        for name in ("confluent", "aiokafka", "millrace")
    }
    try:
        kafka = find_kafka("4.1")
    except SetupError:
        return found
    (jar,) = kafka.libs.glob("kafka-clients-*.jar")
    compiler = [str(find_java()), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", str(jar)]
    subprocess.run([*compiler, "-d", str(folder), str(COPIERS / "CopyWithJava.java")], check=True, timeout=PATIENCE_S)
    java = kafka.command("CopyWithJava", bootstrap, "java", flags=("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",))
    java[java.index("-cp") + 1] += f":{folder}"
    return found | {"java": java}


def ended_transactions(data_dir):
    """Returns how many transactions were committed and aborted: each has one marker in `__consumer_offsets`."""
    ends = Counter()
    for file in data_dir.glob("__consumer_offsets-*/*.log"):
        batches = memoryview(file.read_bytes())
        for position, header in walk(batches):
            if header.is_control:
                marker = decode_marker(header, batches[position : position + header.size_bytes])
                ends[f"transactions, {marker.control_type.name.lower()}"] += 1
    return ends


@pytest.mark.timeout(2400)
@pytest.mark.soak(rounds=4, minutes=30)
def test_loops_copy_exactly_once_though_all_are_killed(tmp_path, rounds, record_property):
    """Every other round kills the broker, and the rounds between kill the clients in turn."""
    kills = defaultdict(int)
    with BrokerProcess(tmp_path / "data", properties=PROPERTIES) as broker:
        programs = commands(broker.bootstrap, tmp_path)
        names = list(programs)
        with Cluster(broker.bootstrap) as cluster:
            for topic in (f"{name}-{end}" for name in names for end in ("in", "out")):
                Admin(cluster).create_topic(topic, PARTITIONS)
        reader = Reader(broker.bootstrap, names)
        feeder = Feeder(broker.bootstrap, reader)
        copiers = [Copier(name, command, tmp_path / f"{name}.log") for name, command in programs.items()]
        victims = (victim for number in count() for victim in (broker, copiers[number % len(copiers)]))
        for thread in (feeder, reader, *copiers):
            thread.start()
        try:
            for _, victim in zip(rounds, islice(victims, MOST_KILLS), strict=False):
                reader.await_counts({name: reader.counts[name] + 1 for name in names})
                threading.Event().wait(random.random())
                kills[f"kills of {'broker' if victim is broker else victim.name}"] += 1
                victim.kill()
                if victim is broker:
                    broker.start()
            feeder.stop()
            reader.await_counts(dict.fromkeys(names, feeder.sent))
        finally:
            for thread in (*copiers, feeder, reader):
                thread.stop()
    for name in names:
        assert reader.copied(name) == feeder.expected(), name
    for name, number in (*kills.items(), *ended_transactions(tmp_path / "data").items()):
        record_property(name, number)
    record_property("records", feeder.sent * len(names))
