"""Four workers of a downstream job, two of them killed at random points: the delays equal a recount from the source.

Each round produces more flights into the same topic and goes on with the same output and the same group. One of the two
may be stopped instead, for longer than its session, and go on when others have its partitions.
"""

import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.lifeline import cut_lifeline
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.demo.carrier_delays import Delays, delays_by_carrier
from millrace_ops.demo.flights import events, read_flights
from millrace_pipelines.downstream import RunOptions
from millrace_pipelines.downstream.consume import prepare
from millrace_pipelines.downstream.workers import start_worker
from millrace_support.downstream_jobs import small_delays

PARTITIONS = 8
FLIGHTS = 12_000
WORKERS = 4
SESSION_TIMEOUT_MS = 2_000
PATIENCE_S = 400


class Worker(threading.Thread):
    """Runs the process of a worker, and counts the commits that it reports."""

    def __init__(self, options, targets):
        super().__init__(daemon=True)
        self.process = start_worker(small_delays, options, targets)
        self.commits, self.last, self.has_committed = 0, {}, threading.Event()
        self.start()

    def run(self):
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self.last = json.loads(line)
                self.commits += "ranges" in self.last
                if self.commits:
                    self.has_committed.set()

    def end(self):
        cut_lifeline(self.process)
        self.process.wait()
        self.join()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def source():
    return list(events(read_flights().slice(0, 5 * FLIGHTS)))


@pytest.fixture
def options(zookeeper, tmp_path):
    connect = f"{zookeeper.address}/{tmp_path.name}"
    with BrokerProcess(tmp_path / "data", zookeeper=connect) as broker:
        yield RunOptions(
            zookeeper=connect, bootstrap=broker.bootstrap, output=str(tmp_path / "delays"), max_seconds=PATIENCE_S,
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )  # fmt: skip


def recount(values):
    """Returns the delays by carrier, computed in plain Python."""
    counts = defaultdict(Counter)
    for value in values:
        flight = json.loads(value)
        count = counts[flight["carrier"]]
        count["flights"] += 1
        count["cancelled"] += flight["dep_time"] is None
        for field, number, total in (
            ("dep_delay", "departures", "departure_delay"),
            ("arr_delay", "arrivals", "arrival_delay"),
        ):
            if flight[field] is not None:
                count[number] += 1
                count[total] += flight[field]
    return {carrier: Delays(**{name: count[name] for name in Delays._fields}) for carrier, count in counts.items()}


def produce(bootstrap, values, chance):
    """Spreads the values over the partitions by chance, so that each carrier is in all of them."""
    shares = defaultdict(list)
    for value in values:
        shares[chance.randrange(PARTITIONS)].append(NewRecord(value))
    with Cluster(bootstrap) as cluster:
        for partition, records in shares.items():
            for begin in range(0, len(records), 500):
                SyncProducer(cluster).send("flights", partition, records[begin : begin + 500])


def kill(worker, chance, faults):
    """Kills a worker at a random moment."""
    time.sleep(chance.uniform(0, 1.5))
    worker.process.kill()
    faults["killed"] += 1


def stop_for_a_while(worker, chance, faults):
    time.sleep(chance.uniform(0, 1.0))
    if worker.process.poll() is None:
        os.kill(worker.process.pid, signal.SIGSTOP)
        time.sleep(SESSION_TIMEOUT_MS / 1000 + 1.5)
        os.kill(worker.process.pid, signal.SIGCONT)
        faults["stopped"] += 1


@pytest.mark.timeout(2400)
@pytest.mark.soak(rounds=2, minutes=8)
def test_delays_equal_a_recount_whatever_becomes_of_the_workers(options, source, rounds, record_property):
    chance = random.Random(os.urandom(8))
    produced, faults, commits = [], Counter(), 0
    with Cluster(options.bootstrap) as cluster:
        Admin(cluster).create_topic("flights", PARTITIONS)
    for number in rounds:
        begin = number % 5 * FLIGHTS
        values = [event.value for event in source[begin : begin + FLIGHTS]]
        produce(options.bootstrap, values, chance)
        produced += values
        commits += one_round(options, (kill, kill) if number % 2 == 0 else (kill, stop_for_a_while), chance, faults)
        assert delays_by_carrier(options.output) == recount(produced), dict(faults)
    for name, count in (("records", len(produced)), ("commits", commits), *faults.items()):
        record_property(name, count)
    assert faults["killed"]


def one_round(options, harms, chance, faults):
    _, targets = prepare(small_delays, options, OsFileSystem(), SystemClock())
    workers = [Worker(options, targets) for _ in range(WORKERS)]
    try:
        assert any(one.has_committed.wait(PATIENCE_S / WORKERS) for one in workers)
        harmed = [
            threading.Thread(target=harm, args=(worker, chance, faults))
            for harm, worker in zip(harms, chance.sample(workers, len(harms)), strict=True)
        ]
        for thread in harmed:
            thread.start()
        for thread in harmed:
            thread.join()
        deadline = time.monotonic() + PATIENCE_S
        while any(one.process.poll() is None for one in workers) and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        for worker in workers:
            worker.end()
    survivors = [one.last for one in workers if one.process.returncode == 0]
    assert {"is_complete": True} in survivors, [one.last for one in workers]
    assert all(said == {"is_complete": True} for said in survivors), survivors
    return sum(one.commits for one in workers)
