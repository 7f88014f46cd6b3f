"""Which broker a folder belongs to, what clients are told of it, and what the cluster may have stored for it."""

import itertools
import json
import re
import subprocess
import sys
from uuid import uuid4

import pytest

from millrace.client import Cluster, Configs, ResourceKind
from millrace.errors import BrokerError, InvalidConfigError
from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.zk.codec import encode_config
from millrace.zk.paths import broker, broker_config
from millrace_support.raw import RawConnection
from millrace_support.zookeeper_sessions import started


class Unnamed(BrokerProcess):
    """A broker that is not told its id."""

    def __init__(self, *places, **options):
        super().__init__(*places, program=("-c", DROP_ID), **options)


DROP_ID = """
import sys
from millrace_broker.__main__ import main
place = sys.argv.index("--id")
sys.exit(main([*sys.argv[1:place], *sys.argv[place + 2:]]))
"""


def meta(folder):
    lines = (folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)["broker.id"]


def ids(running):
    with Cluster(running.bootstrap) as cluster:
        return list(cluster.metadata([]).brokers)


def test_a_broker_without_an_id_has_that_of_its_folder(tmp_path):
    with BrokerProcess(tmp_path, broker_id=7) as named:
        assert ids(named) == [7]
    with Unnamed(tmp_path) as unnamed:
        assert ids(unnamed) == [7]


def test_a_standalone_broker_without_an_id_and_a_folder_is_1(tmp_path):
    with Unnamed(tmp_path) as unnamed:
        assert (ids(unnamed), meta(tmp_path)) == ([1], "1")


def test_zookeeper_gives_ids_above_the_reserved_ones(tmp_path, zookeeper):
    address = f"{zookeeper.address}/{uuid4().hex}"
    with Unnamed(tmp_path / "a", zookeeper=address), Unnamed(tmp_path / "b", zookeeper=address) as second:
        assert sorted(ids(second)) == [1001, 1002]  # the first hears of the second a little later
    with Unnamed(tmp_path / "b", zookeeper=address) as again:
        assert ids(again) == [1002]


def run(*arguments):
    command = [sys.executable, "-m", "millrace_ops", "broker", "--listen", "127.0.0.1:0", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr.splitlines()[-1]


def test_folders_of_different_brokers_are_refused(tmp_path):
    for number in (1, 2):
        with BrokerProcess(tmp_path / str(number), broker_id=number):
            pass
    status, said = run("--standalone", "--data", tmp_path / "1", "--data", tmp_path / "2")
    assert status == 1
    assert said.endswith(f"belong to different brokers: {tmp_path}/1 to broker 1, {tmp_path}/2 to broker 2")


def test_a_folder_of_another_broker_is_refused(tmp_path):
    with BrokerProcess(tmp_path, broker_id=1):
        pass
    status, said = run("--standalone", "--data", tmp_path, "--id", "2")
    assert (status, f"broker.id=2: Invalid value, {tmp_path} belongs to broker 1" in said) == (1, True)


def test_a_broker_that_listens_everywhere_tells_what_is_advertised(tmp_path):
    port = free_port()
    told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}", "broker.rack": "r1"}
    with (
        BrokerProcess(tmp_path, listen=f"0.0.0.0:{port}", properties=told),
        RawConnection(f"127.0.0.1:{port}") as raw,
    ):
        [found] = raw.request(ApiKey.METADATA, 1, {"topics": []}).brokers
    assert (found.host, found.port, found.rack) == ("127.0.0.1", port, "r1")


@pytest.mark.parametrize(
    ("entity", "name", "value"),
    [
        ("1", "listeners", "SSL://127.0.0.1:9093"),
        ("<default>", "create.topic.policy.class.name", "com.example.Policy"),
    ],
)
def test_a_restriction_that_the_cluster_has_stored_stops_the_start(tmp_path, zookeeper, entity, name, value):
    address = f"{zookeeper.address}/{uuid4().hex}"
    with started(address, session_timeout_ms=60_000) as zk:
        zk.put(broker_config(entity), encode_config({name: value}))
        status, said = run("--zookeeper", address, "--data", tmp_path, "--id", "1")
        assert zk.get(broker(1)) is None
    assert status == 1
    assert f"/config/brokers/{entity} of the cluster: {name}={value}: " in said
    assert not (tmp_path / "meta.properties").exists()


def test_a_restriction_is_not_taken_live(tmp_path):
    names = ("ssl.keystore.location", "listener.name.x.sasl.jaas.config", "principal.builder.class")
    with BrokerProcess(tmp_path) as running, Cluster(running.bootstrap) as cluster:
        for name, entity in itertools.product(names, ("1", "")):
            with pytest.raises((BrokerError, InvalidConfigError), match=re.escape(name)):
                Configs(cluster).change(ResourceKind.BROKER, entity, {name: "x"})
    assert "broker_configs" not in json.loads((tmp_path / "metadata.json").read_text())
