"""What a broker tells of its machine's clock: that it was set, and which logs have records from the future."""

import re
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.set_clock import SetClock
from millrace_support.waiting import until

HOUR_S, WAIT_S = 3600, 60
AHEAD = "millrace_log_timestamp_ahead_seconds"


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    return SetClock(tmp_path_factory.mktemp("clock") / "ahead")


@pytest.fixture(scope="module")
def broker(tmp_path_factory, clock):
    with BrokerProcess(tmp_path_factory.mktemp("data"), program=clock.program) as running:
        yield running


def values(broker):
    with urllib.request.urlopen(f"{broker.admin_url}/metrics", timeout=WAIT_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (one.name, *(one.labels[name] for name in sorted(one.labels))): one.value
        for family in families
        for one in family.samples
    }


def once(broker, name, value):
    """All values, once this one is there."""
    return until(lambda: values(broker), lambda found: found.get((name,)) == value)


def test_a_clock_that_is_set_and_set_back(broker, clock):
    assert values(broker)["millrace_clock_steps_total",] == 0
    clock.set(HOUR_S)
    found = once(broker, "millrace_clock_steps_total", 1)
    assert found["millrace_clock_stepped_seconds",] == pytest.approx(HOUR_S, abs=1)
    assert found["millrace_clock_seconds",] - time.time() > HOUR_S / 2
    clock.set(0)
    found = once(broker, "millrace_clock_steps_total", 2)
    assert found["millrace_clock_stepped_seconds",] == pytest.approx(0, abs=1)
    [seconds] = re.findall(r"the machine's clock was set back by ([\d.]+) s:", broker.read_log())
    assert float(seconds) == pytest.approx(HOUR_S, abs=1)


def test_logs_ahead_of_the_clock(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("t", 2)
        producer = SyncProducer(cluster)
        now_ms = time.time_ns() // 1_000_000
        producer.send("t", 0, [NewRecord(b"now", timestamp_ms=now_ms)])
        producer.send("t", 1, [NewRecord(b"later", timestamp_ms=now_ms + HOUR_S * 1000), NewRecord(b"now")])
        found = values(broker)
        assert found[AHEAD, "1", "t"] == pytest.approx(HOUR_S, abs=WAIT_S)
        assert (AHEAD, "0", "t") not in found
        Admin(cluster).delete_records("t", 1, 2)
        assert AHEAD not in {name for name, *_ in values(broker)}
