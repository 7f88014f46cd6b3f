"""What /metrics says of transactions while they are open, end, time out, are fenced, and are loaded again."""

import urllib.request
from pathlib import Path

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess
from millrace_support.waiting import until

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
DEADLINE_S = 120.0
PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
LAG = "last_stable_offset_lag", "0", "events"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("metrics"), properties=PROPERTIES) as running:
        with Cluster(running.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 1)
        yield running


def families(broker):
    with urllib.request.urlopen(f"{broker.admin_url}/metrics") as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def values(broker):
    """Returns the value of each sample, by its name without the prefixes and the values of its labels."""
    return {
        (
            sample.name.removeprefix("millrace_").removeprefix("transaction_"),
            *(sample.labels[label] for label in sorted(sample.labels)),
        ): sample.value
        for family in families(broker)
        for sample in family.samples
    }


def await_values(broker, condition):
    return until(lambda: values(broker), condition)


def producer(broker, transactional_id, timeout_ms=60_000):
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    made = confluent_kafka.Producer(settings | {"transaction.timeout.ms": timeout_ms})
    made.init_transactions(DEADLINE_S)
    return made


def begin(one):
    one.begin_transaction()
    one.produce("events", b"value", partition=0)
    assert one.flush(DEADLINE_S) == 0


def test_transactions_and_what_became_of_them(broker):
    one = producer(broker, "one")
    assert values(broker)["transactions", "Empty"] == 1
    begin(one)
    found = await_values(broker, lambda found: found["longest_open_seconds",] > 0)
    assert (found["transactions", "Ongoing"], found["begun_total",], found["committed_total",]) == (1, 1, 0)
    assert found[LAG] == 1
    one.commit_transaction(DEADLINE_S)
    found = values(broker)
    assert (found["transactions", "CompleteCommit"], found["committed_total",]) == (1, 1)
    assert (found["markers_total", "commit"], found[LAG], found["longest_open_seconds",]) == (1, 0, 0)
    assert found["open_seconds_total",] > 0
    begin(one)
    one.abort_transaction(DEADLINE_S)
    found = values(broker)
    assert (found["transactions", "CompleteAbort"], found["aborted_total",], found["markers_total", "abort"]) == (
        1,
        1,
        1,
    )
    assert (found["fenced_total",], found["timed_out_total",]) == (0, 0)


def test_fenced_producers_transactions_that_time_out_and_loading(broker):
    before = values(broker)
    first, slow = producer(broker, "two"), producer(broker, "slow", timeout_ms=1000)
    begin(first)
    producer(broker, "two")
    assert values(broker)["fenced_total",] == before["fenced_total",] + 1
    begin(slow)
    aborted = before["aborted_total",] + 2
    found = await_values(broker, lambda found: (found["timed_out_total",], found["aborted_total",]) == (1, aborted))
    assert found["fenced_total",] == before["fenced_total",] + 2
    known = sum(value for (name, *_), value in found.items() if name == "transactions")
    broker.restart()
    found = await_values(broker, lambda found: found["partitions_loaded_total",] == 1)
    assert found["ids_loaded_total",] == known
    assert found["load_seconds_total",] > 0


def test_every_family_of_transactions_is_on_the_page(broker):
    names = {one.name for one in families(broker) if "transaction" in one.name or "stable" in one.name}
    assert len(names) == 14
    page = DOCS.read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in page] == []
