"""`millrace doctor` on this machine, beside a running broker, on its folder, and with a ZooKeeper."""

import json
import subprocess

import pytest

from millrace.client import Admin, Cluster
from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess


@pytest.fixture
def doctor(warm_millrace):
    """Returns the exit status and the findings by their things; one finding with the status 1 is a problem."""

    def command(*arguments):
        result = subprocess.run(
            [warm_millrace, "doctor", *map(str, arguments), "--json"], capture_output=True, timeout=120, check=False
        )
        assert result.stderr == b""
        findings = json.loads(result.stdout)
        has_problem = any(one["level"] == "problem" for one in findings)
        assert result.returncode == int(has_problem)
        return {one["thing"]: one for one in findings}

    return command


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("doctor") / "data") as process, Cluster(process.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
        yield process


def test_the_machine_alone_is_checked_without_options(doctor, warm_millrace):
    assert {"millrace", "Java", "open files"} <= doctor().keys()
    table = subprocess.run([warm_millrace, "doctor"], capture_output=True, text=True, timeout=120, check=False)
    assert table.stdout.split()[:5] == ["level", "thing", "found", "wanted", "change"]


def test_a_running_broker_is_seen_and_its_cluster_asked(doctor, broker):
    data = broker.data_dir
    found = doctor("--data", data, "--standalone", "--listen", broker.bootstrap, "--bootstrap", broker.bootstrap)
    assert found[f"state of {data}"]["found"] == "2 partitions in 6 files; a broker runs on it"
    assert found[f"PLAINTEXT at {broker.bootstrap}"]["level"] == "ok"
    assert found["brokers"]["found"] == "all 1 answer"
    assert found["partitions without a leader"]["found"] == "0 of 2"


def test_another_broker_s_port_and_id_are_problems(doctor, broker, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=5\ncluster.id=other\n")
    found = doctor("--data", data, "--standalone", "--listen", broker.bootstrap, "--id", 6)
    assert found[f"PLAINTEXT at {broker.bootstrap}"]["level"] == "problem"
    assert found["broker and cluster of log.dirs"]["found"] == "broker 5 and 6, cluster other"


def test_a_broker_that_was_killed_leaves_a_folder_to_recover(doctor, tmp_path):
    with BrokerProcess(tmp_path / "data") as process, Cluster(process.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 1)
        process.kill()
    found = doctor("--data", tmp_path / "data", "--standalone", "--listen", "127.0.0.1:0")
    assert found[f"state of {tmp_path / 'data'}"]["level"] == "advice"


def test_zookeeper_is_asked_whose_cluster_it_holds(doctor, zookeeper, tmp_path):
    address, data = f"{zookeeper.address}/doctor", tmp_path / "data"
    arguments = ("--data", data, "--zookeeper", address, "--listen", "127.0.0.1:0")
    assert doctor(*arguments)[f"ZooKeeper at {address}"]["found"] == "answers, with brokers none"
    with BrokerProcess(data, zookeeper=address, broker_id=4):
        found = doctor(*arguments, "--set", "default.replication.factor=2")
        assert found[f"ZooKeeper at {address}"]["found"] == "answers, with brokers 4"
        assert (found["broker.id"]["level"], found["default.replication.factor"]["level"]) == ("ok", "problem")
        copy = doctor("--data", tmp_path / "other", "--id", 4, *arguments[2:])
        assert copy["broker.id"]["level"] == "problem"


def test_what_does_not_answer_is_a_problem(doctor):
    silent = f"127.0.0.1:{free_port()}"
    found = doctor("--bootstrap", silent)
    assert found[f"cluster at {silent}"]["level"] == "problem"
