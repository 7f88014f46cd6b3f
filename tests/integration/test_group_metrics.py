"""What /metrics says of groups and fetch sessions while consumers come, commit, leave, and their offsets expire."""

import urllib.request
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.raw import RawConnection
from millrace_support.waiting import until

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
DEADLINE_S = 120
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.retention.check.interval.ms": "100",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("metrics"), properties=PROPERTIES) as running:
        with Cluster(running.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 1)
            SyncProducer(cluster).send("events", 0, [NewRecord(b"v")])
        yield running


def families(broker):
    with urllib.request.urlopen(f"{broker.admin_url}/metrics") as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def values(broker):
    """Returns the value of each sample, by its name without millrace_ and the values of its labels."""
    return {
        (
            sample.name.removeprefix("millrace_"),
            *(sample.labels[label] for label in sorted(sample.labels)),
        ): sample.value
        for family in families(broker)
        for sample in family.samples
    }


def await_values(broker, expected):
    """Waits for all values in one answer; the broker may do other work while it writes one."""
    return until(lambda: values(broker), lambda found: expected.items() <= found.items())


def consumer(broker, group, **settings):
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"} | settings
    return confluent_kafka.Consumer({**settings, "enable.auto.commit": False})


def test_groups_and_what_became_of_their_offsets(broker):
    classic, new = consumer(broker, "old"), consumer(broker, "new", **{"group.protocol": "consumer"})
    for one in (classic, new):
        one.subscribe(["events"])
        while one.poll(0.1) is None:
            pass
        one.commit(asynchronous=False)
    found = values(broker)
    assert found["groups", "consumer", "stable", "classic"] == 1
    assert found["groups", "consumer", "stable", "consumer"] == 1
    assert found["group_members", "consumer", "classic"] == found["group_members", "consumer", "consumer"] == 1
    assert found["group_rebalances_total", "classic"] == found["group_rebalances_total", "consumer"] == 1
    assert found["group_offsets",] == found["group_offsets_committed_total",] == 2
    classic.close()
    new.close()
    empty = {("groups", "consumer", "empty", kind): 1 for kind in ("classic", "consumer")}
    rebalances = {("group_rebalances_total", "classic"): 2}  # the last one leaves an empty generation
    await_values(broker, empty | rebalances | {("group_members", "consumer", "classic"): 0})
    broker.restart()
    loaded = {"group_partitions_loaded_total": 1, "group_groups_loaded_total": 2, "group_offsets_loaded_total": 2}
    await_values(broker, {(name,): value for name, value in loaded.items()})
    found = values(broker)
    assert found["group_load_seconds_total",] > 0
    assert found["group_offsets_expired_total",] == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_consumer_groups(["new"])["new"].result(DEADLINE_S)
    found = values(broker)
    assert (found["group_offsets_removed_total",], found["group_offsets_expired_total",]) == (1, 0)


def test_offsets_that_expire_are_counted(broker):
    before = values(broker)
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    fields = {
        "group_id": "short", "generation_id_or_member_epoch": -1, "member_id": "", "retention_time": 1,
        "topics": [{"name": "events", "partitions": [partition]}],
    }  # fmt: skip
    with RawConnection(broker.bootstrap) as connection:
        answer = connection.request(ApiKey.OFFSET_COMMIT, 2, fields)
    assert answer.topics[0].partitions[0].error_code == 0
    removed = before["group_offsets_removed_total",] + 1
    left = {("group_offsets_removed_total",): removed, ("group_offsets",): before["group_offsets",]}
    await_values(broker, left | {("group_offsets_expired_total",): 1})


def fetch(connection, session_id, epoch, *, wanted=True):
    partition = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0,
        "session_id": session_id, "session_epoch": epoch, "forgotten_topics_data": (), "rack_id": "",
        "topics": [{"topic": "events", "partitions": [partition]}] if wanted else (),
    }  # fmt: skip
    return connection.request(ApiKey.FETCH, 11, fields).session_id


def test_fetch_sessions_and_what_was_fetched_in_them(broker):
    names = ("sessionless", "full", "incremental", "refused")
    before = values(broker)
    with RawConnection(broker.bootstrap) as connection:
        session_id = fetch(connection, 0, 0)
        fetch(connection, session_id, 1, wanted=False)
        fetch(connection, session_id, 2, wanted=False)
        fetch(connection, session_id, 99, wanted=False)
        open_now = values(broker)
        fetch(connection, session_id, -1)
    found = values(broker)
    assert [found.get(("fetches_total", name), 0) - before.get(("fetches_total", name), 0) for name in names] == [
        1,
        1,
        2,
        1,
    ]
    assert open_now["fetch_sessions",] == found["fetch_sessions",] + 1
    assert open_now["fetch_session_partitions",] == found["fetch_session_partitions",] + 1
    assert found["fetch_session_evictions_total",] == 0


def test_every_metric_is_in_the_documentation(broker):
    text = DOCS.read_text()
    ours = {family.name for family in families(broker) if family.name.startswith("millrace_")}
    assert ours
    assert {name for name in ours if f"`{name}" not in text} == set()
