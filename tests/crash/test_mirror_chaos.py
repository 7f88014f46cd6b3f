"""A mirror of two instances between two clusters, all of which are killed and paused while clients write to the source.

Clients write ordinary records and transactions, which are committed, aborted or left open (`chaos/mirror_load.py`); a
topic is compacted and another one loses its beginning meanwhile. Faults are of the mirror's instances and of brokers of
both clusters (`chaos/mirror_sides.py`), and each comes once more committed records have come to the target. In the end
both clusters are compared record by record by a program that knows nothing of the mirror (`chaos/mirror_judge.py`),
and by `millrace mirror audit`.

`MILLRACE_CHAOS_SEED=4711` draws the faults of a seed again; each run prints its own.
"""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from mirror_judge import differences
from mirror_load import PARTITIONS, TOPICS, Ordinary, Transactional, create_topics
from mirror_sides import MILLRACE, SESSION_TIMEOUT_MS, OneKafka, cluster_of, drawn, happen

from millrace.client import Cluster
from millrace.errors import MillraceError, SetupError
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_benchmarks.mirror_process import MirrorProcess, mirror_settings
from millrace_support.waiting import awaited

NAME = "here"
SETTINGS = {
    "topics_interval_ms": 1000,
    "session_timeout_ms": SESSION_TIMEOUT_MS,
    "accept_lost_offsets": True,  # of the one topic whose beginning is deleted: a busy machine may be too late for it
}
INSTANCES = 2
MORE = 20  # records that come to the target between two faults
SHOWN = 20
KINDS = (MILLRACE, "Kafka 3.9", "Kafka 4.1")
PAIRS = [(source, target, "auto") for source in KINDS for target in KINDS] + [(MILLRACE, MILLRACE, "copy")]


class Arriving:
    """Counts the committed records that come to the target in `events`."""

    def __init__(self, bootstrap):
        self.count = 0
        self.consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "arriving", "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "error", "reconnect.backoff.max.ms": 500, "log_level": 0,
        })  # fmt: skip
        self.consumer.assign([
            TopicPartition(f"{NAME}.events", partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)
        ])  # fmt: skip

    def has(self, wanted):
        """Returns True once so many have come, else None."""
        self.count += sum(1 for one in self.consumer.consume(1000, timeout=0.1) if not one.error())
        return self.count >= wanted or None


@contextlib.contextmanager
def told_if_it_fails(mirrors, told):
    """Adds to an error what has happened, and the ends of what the mirror's instances have printed."""
    try:
        yield
    except BaseException as error:
        error.add_note("\n".join(told))
        for mirror in mirrors:
            error.add_note(mirror.read_log()[-4000:])
        raise


def has_all_topics(bootstrap):
    """Returns True once each topic is there at the target, else None."""
    names = [f"{NAME}.{topic}" for topic in TOPICS]
    with contextlib.suppress(MillraceError), Cluster(bootstrap) as cluster:
        found = cluster.metadata(names).topics
        return all(name in found and len(found[name].partitions) == PARTITIONS for name in names) or None
    return None


def audit(settings_file):
    """Compares by the command, whose exit status is 0 where nothing differs."""
    command = [sys.executable, "-m", "millrace_ops", "mirror", "audit", "--config", str(settings_file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=600)
    assert done.returncode == 0, done.stdout.decode()


def skip_without_jars(*kinds):
    for kind in kinds:
        try:
            if kind != MILLRACE:
                find_kafka(kind.removeprefix("Kafka "))
        except SetupError as error:
            pytest.skip(str(error))


class Run:
    """A mirror between two clusters under a load; what has happened is in `told`, and in told.txt."""

    def __init__(self, stack, source, target, *, folder, way, seed):
        self.source, self.target = source, target
        self.kafkas = [one for one in (*source.brokers, *target.brokers) if isinstance(one, OneKafka)]
        self.begun_s, self.told, self.told_file = time.monotonic(), [], folder / "told.txt"
        self.tell(f"MILLRACE_CHAOS_SEED={seed}")
        create_topics(source.bootstrap, source.replicas)
        settings = mirror_settings(
            source=source.bootstrap, target=target.bootstrap, name=NAME, topics="|".join(TOPICS), way=way,
            further=SETTINGS,
        )  # fmt: skip
        self.mirrors = [stack.enter_context(MirrorProcess(folder, settings, f"{one}")) for one in range(INSTANCES)]
        self.writers = [Ordinary(source.bootstrap, "ordinary", seed), Transactional(source.bootstrap, "payer", seed)]
        for each in self.writers:
            stack.callback(each.stopping.set)
            each.start()

    def tell(self, what):
        """Notes what happens, and how many seconds after the beginning."""
        self.told.append(f"{time.monotonic() - self.begun_s:.1f} s: {what}")
        self.told_file.write_text("\n".join(self.told))

    def await_goes_on(self, look, what, describe=str):
        """Waits until `look` returns something; fails at once where an instance of the mirror has ended by itself.

        A broker of Apache Kafka that has lost its group coordinator is started again, as nothing else helps.
        """

        def looked():
            assert not any(each.has_ended for each in self.mirrors), "an instance has ended by itself"
            for broker in self.kafkas:
                if broker.mend():
                    self.tell("Apache Kafka is started again, as its group coordinator is lost")
            return look()

        return awaited(looked, what, describe)

    def play(self, faults):
        """Lets the faults happen, each once more has come to the target."""
        self.await_goes_on(partial(has_all_topics, self.target.bootstrap), "all topics are there")
        arriving = Arriving(self.target.bootstrap)
        parties = {"mirror": self.mirrors, "source": self.source.brokers, "target": self.target.brokers}
        for number, fault in enumerate(faults):
            wanted = arriving.count + MORE
            self.await_goes_on(
                partial(arriving.has, wanted), f"{wanted} records have come", lambda: f"{arriving.count}"
            )
            self.tell(f"fault {number}, {fault}")
            happen(fault, parties[fault.party])
        self.tell("no more faults")
        for each in self.writers:
            each.finish()
        self.tell(f"no more records: {dict(sum((one.outcomes for one in self.writers), Counter()))}")

    def await_equal(self, *, is_followed):
        """Waits until nothing differs, and else fails with what does."""
        found = []

        def look():
            found[:] = differences(self.source.bootstrap, self.target.bootstrap, NAME, is_followed=is_followed)
            return not found or None

        self.await_goes_on(look, "both clusters have the same", lambda: "\n".join(found[:SHOWN]))


@pytest.mark.timeout(3 * 3600)
@pytest.mark.soak(rounds=20, soak_rounds=200)
@pytest.mark.parametrize("kinds_and_way", PAIRS, ids=["-".join(pair).replace(" ", "") for pair in PAIRS])
def test_nothing_is_lost_doubled_or_shown(kinds_and_way, zookeeper, tmp_path, rounds, record_property):
    *kinds, way = kinds_and_way
    skip_without_jars(*kinds)
    seed = int(os.environ.get("MILLRACE_CHAOS_SEED") or random.randrange(10**6))
    faults = list(islice(drawn(seed), len(list(rounds))))
    with contextlib.ExitStack() as stack:
        sides = [
            cluster_of(kind, tmp_path / party, zookeeper.address)
            for party, kind in zip(("source", "target"), kinds, strict=True)
        ]
        with ThreadPoolExecutor(len(sides)) as starting:
            source, target = starting.map(stack.enter_context, sides)
        run = Run(stack, source, target, folder=tmp_path, way=way, seed=seed)
        stack.enter_context(told_if_it_fails(run.mirrors, run.told))
        run.play(faults)
        run.await_equal(is_followed=kinds[1] == MILLRACE and way != "copy")
        run.tell("nothing differs")
        audit(tmp_path / "0.toml")
        run.tell("the audit agrees")
    figures = Counter(f"{fault.party} {fault.kind}" for fault in faults)
    for name, number in sorted(sum((one.outcomes for one in run.writers), figures).items()):
        record_property(name, number)
    record_property("seed", seed)
