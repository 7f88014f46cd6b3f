"""kill -9 of two loaders that race in one table of each store, and of who compacts it beside.

That is delta-rs where loads append. Where they upsert it is Millrace: an `optimize` of delta-rs commits over removals
of the files that it read, its own ones, too (docs/warehouse-reading.md).

What is killed, and how long after a load has ended, is drawn by a seed, which MILLRACE_CHAOS_SEED gives. New records
come before each kill. In the end the audit that compares with the topic is clean, and delta-rs reads each record once:
of a table with a row for each key, the newest one.
"""

import os
import random
import time
from collections import Counter
from functools import partial

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.maintenance import vacuum
from millrace_pipelines.warehouse.stores.options import use_store_options
from millrace_support.lake_contents import rows_at
from millrace_support.stores.racing_loads import Victim, compact_for_ever, keep_compact, load_for_ever, load_here
from millrace_support.stores.stand_ins import missing, started
from millrace_support.waiting import until

STORES = ("folder", "s3 (MinIO)", "gs (fake-gcs-server)", "abfss (Azurite)")
PARTITIONS, RECORDS, KEYS = 2, 20, 30
LONGEST_PAUSE_S = 0.5
COLUMNS = ("partition", "offset", "key", "value")


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    """The address of a store, and its options by that address."""
    if request.param == "folder":
        yield str(tmp_path / "lake"), {}
        return
    if (reason := missing(request.param)) is not None:
        pytest.skip(reason)
    with started(request.param) as running:
        yield running.address, {running.address: running.options}


@pytest.fixture
def cluster(tmp_path):
    with BrokerProcess(tmp_path / "broker") as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", PARTITIONS)
        cluster.address = broker.bootstrap
        yield cluster


class Topic:
    """The topic of the loads, and all that was sent to it, as rows of a table."""

    def __init__(self, cluster, chance):
        self._producer, self._chance = SyncProducer(cluster), chance
        self.sent = []

    def send(self, number):
        """Sends a batch of records to a partition, whose keys come again and again."""
        partition = number % PARTITIONS
        keys = [b"%d-%d" % (partition, self._chance.randrange(KEYS)) for _ in range(RECORDS)]
        values = [b"%d-%d" % (number, one) for one in range(RECORDS)]
        self._producer.send("events", partition, [NewRecord(*one) for one in zip(values, keys, strict=True)])
        first = RECORDS * (number // PARTITIONS)
        self.sent += zip([partition] * RECORDS, range(first, first + RECORDS), keys, values, strict=True)

    def expected(self, mode):
        newest = {row[2]: row for row in self.sent}
        return Counter(self.sent if mode is Mode.APPEND else newest.values())


@pytest.mark.soak(rounds=10, soak_rounds=200)
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.UPSERT], ids=str)
def test_each_record_is_there_once_whatever_is_killed(store, mode, cluster, tmp_path, rounds, record_property):  # noqa: PLR0917
    address, store_options = store
    seed = int(os.environ.get("MILLRACE_CHAOS_SEED") or random.randrange(10**6))
    chance = random.Random(seed)
    record_property("seed", seed)
    use_store_options(store_options)
    options = LoadOptions(
        topic="events", table=f"{address}/chaos/events", bootstrap=cluster.address, mode=mode,
        max_records_per_run=RECORDS, max_records_per_task=RECORDS // 4,
    )  # fmt: skip
    topic = Topic(cluster, chance)
    topic.send(0)
    load_here(options)
    logs = [tmp_path / name for name in ("left", "right", "compactions")]
    victims = [Victim(load_for_ever, options, store_options, log) for log in logs[:2]]
    compaction = compact_for_ever if mode is Mode.APPEND else keep_compact
    victims.append(Victim(compaction, options.table, store_options, logs[2]))
    number = ended = 0
    try:
        for number in rounds:
            topic.send(number + 1)
            ended = until(partial(loads_in, logs), lambda now, before=ended: now > before)
            time.sleep(chance.uniform(0, LONGEST_PAUSE_S))
            victim = chance.choice(victims)
            victim.kill()
            victim.start()
    finally:
        for victim in victims:
            victim.kill()
    while load_here(options).rows:
        pass
    check(options, topic.expected(mode), store_options)
    vacuum(options.table, DISK, retention_hours=0)
    check(options, topic.expected(mode), store_options)
    ends = Counter(line.split()[0] for log in logs for line in log.read_text().splitlines())
    record_property("kills", number + 1)
    record_property("ends", dict(ends))
    assert ends.keys() <= {"rows", "compacted", "StaleLedgerError", "CommitFailedError"}, seed
    assert min(ends["rows"], ends["compacted"]) > 0


def loads_in(logs):
    """Returns how many loads have ended, whether by a commit or because the other loader was first."""
    return sum(len(log.read_text().splitlines()) for log in logs[:2] if log.exists())


def check(options, expected, store_options):
    assert audit(options.table, bootstrap=options.bootstrap) == []
    [own] = store_options.values() or [{}]
    assert rows_at(options.table, *COLUMNS, options={**own, "allow_http": "true"} if own else None) == expected
