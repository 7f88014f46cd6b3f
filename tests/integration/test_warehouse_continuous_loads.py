"""A continuous load follows a producer, tells its lag, and goes on where a killed one has stopped."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request

import pytest

from millrace.client import Cluster
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_support.broker_properties import KEEPS_ALL
from millrace_support.keyed_events import Events, by_key, key
from millrace_support.waiting import awaited


@pytest.fixture
def events(tmp_path):
    with BrokerProcess(tmp_path / "broker", properties=KEEPS_ALL) as process, Cluster(process.bootstrap) as cluster:
        yield Events(cluster, process.bootstrap)


def test_a_continuous_load_follows_a_producer_and_survives_kills(events, tmp_path):
    table = tmp_path / "t"
    command = [sys.executable, "-m", "millrace_ops", "warehouse", "load", events.topic, "--table", str(table)]
    command += ["--bootstrap", events.options(table).bootstrap, "--master", "local[2,3]", "--mode", "upsert"]
    command += [
        "--continuous",
        "--interval",
        "0.05",
        "--json",
        "--metrics",
        "127.0.0.1:0",
        "--max-records-per-run",
        "97",
    ]

    def produce():
        for n in range(20):
            events.send(*((key((n * 7 + m) % 50), b"%d" % n) for m in range(20)), (key(n % 50), None))

    producer = threading.Thread(target=produce)
    producer.start()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ) as process:
        process.stdout.readline()
        process.kill()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
        address = process.stderr.readline().decode().split()[-1]
        threading.Thread(target=process.stderr.read, daemon=True).start()
        producer.join()
        events.send((key(0), b"the last one"))  # so that another load, which prints a line, has something to do
        for line in process.stdout:
            report = json.loads(line)
            if sum(report["lag"].values()) == 0 and by_key(table) == events.newest:
                break
        lag = f'millrace_load_lag_records{{partition="0",topic="{events.topic}"}} 0.0'
        awaited(lambda: lag in urllib.request.urlopen(address).read().decode() or None, "the metrics have the lag")
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    assert by_key(table) == events.newest
    assert audit(str(table)) == []
