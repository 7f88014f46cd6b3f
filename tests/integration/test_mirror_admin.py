"""The admin endpoint of a mirror that runs as a command, between two brokers."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess
from millrace_support.mirrored_records import write

PATIENCE_S = 60
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
eventually = retry(
    stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(0.1), retry=retry_if_exception_type(AssertionError), reraise=True
)


@contextmanager
def mirror(source, target, *options):
    """Runs a mirror of the source `east`; yields the URL of its admin endpoint."""
    command = [sys.executable, "-m", "millrace_ops", "mirror", f"--source=east={source}", f"--target={target}"]
    with subprocess.Popen([*command, "--admin=127.0.0.1:0", *options], stderr=subprocess.PIPE, text=True) as process:
        try:
            said = process.stderr.readline()
            assert "metrics at http://" in said, said
            yield said.split()[-1].removesuffix("/metrics")
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(url):
    _, text = get(f"{url}/metrics")
    return {(one.name, *(value for _, value in sorted(one.labels.items()))): one.value
            for family in text_string_to_metric_families(text) for one in family.samples}  # fmt: skip


@pytest.mark.parametrize("way", ["follow", "copy"])
def test_a_mirror_tells_what_it_does(tmp_path, way):
    config = tmp_path / "mirror.toml"
    config.write_text(f'way = "{way}"\ntopics = [".*"]\n')
    with (
        BrokerProcess(tmp_path / "source", properties=QUICK) as source,
        BrokerProcess(tmp_path / "target", properties=QUICK) as target,
    ):
        with Cluster(source.bootstrap) as cluster:
            Admin(cluster).create_topic("orders", 1)
        write(source.bootstrap, "orders", 1, 20, seed=1)
        with mirror(source.bootstrap, target.bootstrap, f"--config={config}") as url:
            mirrors_all(url, way)
            assert get(f"{url}/healthz") == (200, json.dumps({"status": "ok", "reasons": []}))
            assert get(f"{url}/else")[0] == 404
            is_ready(url)
            target.kill()
            is_not_ready(url, "target")


@eventually
def mirrors_all(url, way):
    found = scrape(url)
    assert found.get(("millrace_mirror_records_total", "east", "orders")) == 100, found
    assert found["millrace_mirror_lag_records", "0", "east", "orders"] == 0
    assert found["millrace_mirror_partitions", "east", way] == 1
    assert found["millrace_mirror_leader", "east"] == 1
    assert found["millrace_mirror_topics", "east", "mirroring"] == 1
    assert bool(found["millrace_mirror_transactions_committed_total",]) == (way == "copy")


@eventually
def is_ready(url):
    assert get(f"{url}/readyz")[0] == 200
    assert {value for (name, *_), value in scrape(url).items() if name == "millrace_mirror_cluster_reachable"} == {1}


@eventually
def is_not_ready(url, place):
    status, body = get(f"{url}/readyz")
    (reason,) = json.loads(body)["reasons"] or [""]
    assert (status, reason.partition(":")[0]) == (503, place)


def test_a_port_that_is_taken_is_an_error_that_names_it(tmp_path):
    with BrokerProcess(tmp_path / "source", properties=QUICK) as broker:
        command = [sys.executable, "-m", "millrace_ops", "mirror", f"--admin={broker.bootstrap}"]
        command += [f"--source=east={broker.bootstrap}", f"--target={broker.bootstrap}", "--topics=.*"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert f"--admin {broker.bootstrap}: Address already in use" in done.stderr
