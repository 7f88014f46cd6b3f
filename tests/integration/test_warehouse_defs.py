"""One process loads all tables that a file declares: what fails among them stops no other, and a kill loses nothing."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from millrace.client import Cluster
from millrace.client.access import create_acls
from millrace.client.admin import Admin
from millrace.records.record import NewRecord, encode_batch
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.load_topics import append
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.rewrite import current_files
from millrace_support.broker_properties import KEEPS_ALL
from millrace_support.loads import FS

OPEN = {
    **KEEPS_ALL,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ALICE_ALONE = AclBinding(
    ResourcePattern(ResourceType.TOPIC, "secret", PatternType.LITERAL),
    Acl("User:alice", "*", AclOperation.READ, PermissionType.ALLOW),
)
HEALTHY = ["one", "p-1", "p-2", "two"]
TIMEOUT_S = 300


class Lake:
    """A broker with topics, and a file that declares their tables."""

    def __init__(self, cluster, bootstrap, folder):
        self.cluster, self.bootstrap, self.folder = cluster, bootstrap, folder
        self.defs = folder / "defs.yaml"

    def create(self, *topics):
        for topic in topics:
            Admin(self.cluster).create_topic(topic, 2)

    def send(self, topic, *values, partition=0):
        records = [NewRecord(value, key=b"k", timestamp_ms=1_700_000_000_000) for value in values]
        append(self.cluster, topic, partition, encode_batch(records))

    def declare(self, *tables):
        lines = [f"    - {json.dumps(one)}" for one in tables]
        text = ["type: millrace_pipelines.MillraceComponent", "attributes:", f"  bootstrap: {self.bootstrap}"]
        text += [
            f"  warehouse: {self.folder}/lake",
            "  undeclared_topics: ignore",
            "  load_metrics: " + str(self.folder),
        ]
        self.defs.write_text("\n".join([*text, "  tables:", *lines]) + "\n")

    def command(self, *options):
        program = [sys.executable, "-m", "millrace_ops", "warehouse", "load", "--defs", str(self.defs)]
        return [*program, "--master", "local[1,3]", *options]

    def load(self, *options):
        return subprocess.run(
            self.command(*options), capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=os.environ
        )

    def rows(self, topic):
        return sum(one.rows for one in current_files(Table.load(f"{self.folder}/lake/{topic}", FS)))


@pytest.fixture
def lake(tmp_path):
    with BrokerProcess(tmp_path / "broker", properties=OPEN) as broker, Cluster(broker.bootstrap) as cluster:
        yield Lake(cluster, broker.bootstrap, tmp_path)


def test_each_table_is_loaded_and_those_that_fail_are_named(lake):
    everything = [*HEALTHY, "damaged", "recreated", "secret"]
    lake.create(*everything)
    for topic in everything:
        lake.send(topic, b"1", b"2", b"3")
    lake.declare({"topic": "one"}, {"topic": "two"}, {"pattern": "p-.*"}, *({"topic": name} for name in everything[4:]))

    first = lake.load()
    assert (first.returncode, min(first.stdout.splitlines())) == (0, "7 tables"), first.stderr
    assert {topic: lake.rows(topic) for topic in everything} == dict.fromkeys(everything, 3)

    (lake.folder / "lake" / "damaged" / "_delta_log" / f"{0:020d}.json").write_text("{no commit")
    Admin(lake.cluster).delete_topic("recreated")
    lake.create("recreated")
    create_acls(lake.cluster, [ALICE_ALONE])
    lake.declare(*({"topic": name} for name in (*everything, "never-made")))
    for topic in everything:
        if topic != "secret":
            lake.send(topic, b"4", b"5", partition=1)

    second = lake.load("--json")
    reports = {one["topic"]: one for one in json.loads(second.stdout)}
    assert second.returncode == 1
    assert {topic: reports[topic]["rows"] for topic in HEALTHY} == dict.fromkeys(HEALTHY, 2)
    assert {topic: one["error"] for topic, one in reports.items() if "error" in one} == {
        "damaged": "WarehouseError",
        "never-made": "AbsentTopicError",
        "recreated": "TopicRecreatedError",
        "secret": "BrokerError",
    }
    assert "TOPIC_AUTHORIZATION_FAILED" in reports["secret"]["sentence"]
    assert "4 of 8 tables failed: damaged, never-made, recreated, secret" in second.stderr
    failing = 'millrace_table_load_failing{error="TopicRecreatedError"'
    assert failing in (lake.folder / "millrace.table.recreated.prom").read_text()
    for topic in HEALTHY:
        assert audit(f"{lake.folder}/lake/{topic}", bootstrap=lake.bootstrap) == []

    third = lake.load("--accept-recreated-topic")
    assert "recreated: version" in third.stdout
    assert sorted(line for line in third.stdout.splitlines() if "nothing new" in line) == [
        f"{topic}: nothing new" for topic in HEALTHY
    ]


def test_a_dry_run_tells_of_each_table_and_writes_nothing(lake):
    lake.create("one", "two")
    lake.send("one", b"1")
    lake.declare({"topic": "one"}, {"topic": "gone"}, {"topic": "two"})
    done = lake.load("--dry-run")
    assert done.returncode == 1
    assert "one: 1 offsets would be loaded" in done.stdout
    assert "gone: " in done.stderr
    assert not (lake.folder / "lake").exists()


def test_killed_continuous_loads_of_many_tables_go_on_and_a_signal_lets_them_end(lake):
    topics = [f"t{number}" for number in range(12)]
    lake.create(*topics)
    lake.declare({"pattern": "t.*"}, {"topic": "never-made"})
    sent = threading.Event()

    def produce():
        for number in range(30):
            for topic in topics:
                lake.send(topic, b"%d" % number, partition=number % 2)
        sent.set()

    producer = threading.Thread(target=produce)
    producer.start()
    loop = lake.command("--continuous", "--interval", "0.05", "--json")
    while not sent.is_set():
        with subprocess.Popen(loop, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ) as process:
            process.stdout.readline()
            process.kill()
    producer.join()
    lake.create("t-new")  # which comes while the loop runs
    errors = lake.folder / "stderr"
    with (
        errors.open("w") as told,
        subprocess.Popen(loop, stdout=subprocess.PIPE, stderr=told, env=os.environ) as process,
    ):
        lake.send("t-new", *[b"x"] * 30)
        while not _all_loaded(lake, [*topics, "t-new"], 30):
            assert process.stdout.readline(), errors.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    for topic in [*topics, "t-new"]:
        assert audit(f"{lake.folder}/lake/{topic}", bootstrap=lake.bootstrap) == []
    assert "never-made: attempt 1 failed, again in 1 s" in errors.read_text()


def _all_loaded(lake, topics, offsets):
    def loaded(topic):
        path = Path(lake.folder, "lake", topic)
        entries = read_ledger(str(path)).partitions.values() if (path / "_delta_log").exists() else ()
        return sum(entry.next_offset for entry in entries)

    return all(loaded(topic) == offsets for topic in topics)
