"""What configurations, listeners, ZooKeeper and clusters mean."""

import socket
from dataclasses import replace

import pytest

from millrace.addresses import Address
from millrace_broker.properties.listeners import Listener
from millrace_ops.doctor.cluster import ClusterFacts, ZooKeeperFacts, check_cluster, check_replicas, check_zookeeper
from millrace_ops.doctor.configuration import check_configuration, read_configuration
from millrace_ops.doctor.network import ListenerFacts, check_admin, check_listener, read_listeners

GIB = 1 << 30
CLUSTER = ClusterFacts(bootstrap="h:1", broker_ids=frozenset({1, 2}), partitions=9)
ZOOKEEPER = ZooKeeperFacts(address="z:1", cluster_id="c", broker_ids=frozenset({1, 2}))


def given(*properties, coordination="--zookeeper=z:1"):
    return read_configuration(["--data=/d", coordination, *(f"--set={one}" for one in properties)])


def bad(findings):
    return [(one.level.value, one.thing) for one in findings if one.level != "ok"]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ((), [("advice", "log.flush.interval.messages")]),
        (("log.flush.interval.ms=1000",), []),
        (("single.replica.sync.enable=true",), []),
        (("default.replication.factor=3", "min.insync.replicas=2"), []),
        (("default.replication.factor=3", "min.insync.replicas=3"), [("advice", "min.insync.replicas")]),
        (("default.replication.factor=3", "min.insync.replicas=1"), [("advice", "min.insync.replicas")]),
        (("default.replication.factor=3", "min.insync.replicas=4"), [("problem", "min.insync.replicas")]),
        (
            ("log.flush.interval.messages=1", "unclean.leader.election.enable=true"),
            [("advice", "unclean.leader.election.enable")],
        ),
        (
            ("log.flush.interval.messages=1", "socket.request.max.bytes=1000000"),
            [("problem", "message.max.bytes")],
        ),
        (("log.flush.interval.messages=1", "queued.max.request.bytes=-1"), [("problem", "queued.max.request.bytes")]),
        (
            ("log.flush.interval.messages=1", f"queued.max.request.bytes={GIB}"),
            [("advice", "queued.max.request.bytes")],
        ),
        (("log.flush.interval.messages=1", "num.io.threads=9"), [("advice", "num.io.threads")]),
    ],
)
def test_values_are_judged_together(properties, expected):
    assert bad(check_configuration(given(*properties), 2 * GIB)) == expected


@pytest.mark.parametrize("arguments", [["--data=/d"], ["--data=/d", "--standalone", "--set=num.partition=3"]])
def test_what_a_broker_does_not_start_with_is_a_problem(arguments):
    (finding,) = check_configuration(read_configuration(arguments), GIB)
    assert (finding.level.value, finding.thing) == ("problem", "configuration")
    assert finding.found


def test_a_warning_of_the_start_is_advice_and_not_printed(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("log.flush.interval.messages=1\nmy.own=3\n")
    findings = list(check_configuration(read_configuration(["--data=/d", "--standalone", f"--config={file}"]), None))
    assert bad(findings) == [("advice", "configuration")]
    assert any(one.found == f"{file}:2: unknown property my.own is ignored" for one in findings)
    assert capsys.readouterr() == ("", "")


def test_an_address_in_use_is_a_problem_unless_a_broker_runs():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
        taken, admin = read_listeners([Listener(name="A", address=address)], Address("127.0.0.1", 0))
    assert (taken.is_in_use, taken.trouble, admin.is_in_use) == (True, None, False)
    assert bad(check_listener(taken, broker_runs=False)) == [("problem", f"A at {address}")]
    assert bad(check_listener(taken, broker_runs=True)) == []
    assert bad(check_listener(admin, broker_runs=False)) == []


def test_an_address_of_another_machine_is_a_problem():
    (foreign, _) = read_listeners([Listener(name="A", address=Address("192.0.2.1", 1))], Address("127.0.0.1", 0))
    assert bad(check_listener(foreign, broker_runs=True)) == [("problem", "A at 192.0.2.1:1")]


def test_clients_have_to_find_what_they_are_told():
    facts = ListenerFacts(name="A", address=Address("0.0.0.0", 9092), unresolved="no.such.host")
    assert bad(check_listener(facts, broker_runs=False)) == [("problem", "advertised address of A")]


@pytest.mark.parametrize(
    ("host", "has_token", "has_tls", "expected"),
    [
        ("127.0.0.1", False, False, []),
        ("0.0.0.0", True, True, []),
        ("0.0.0.0", True, False, [("advice", "admin.security.protocol")]),
        ("0.0.0.0", False, True, [("problem", "admin.token")]),
    ],
)
def test_an_admin_endpoint_that_others_reach_is_guarded(host, has_token, has_tls, expected):
    assert bad(check_admin(Address(host, 9644), has_token=has_token, has_tls=has_tls)) == expected


@pytest.mark.parametrize(
    ("facts", "broker_id", "broker_runs", "expected"),
    [
        (ZOOKEEPER, 3, False, []),
        (ZOOKEEPER, None, False, []),
        (ZOOKEEPER, 2, True, []),
        (ZOOKEEPER, 2, False, [("problem", "broker.id")]),
        (replace(ZOOKEEPER, trouble="no answer"), 2, False, [("problem", "ZooKeeper at z:1")]),
    ],
)
def test_a_broker_has_an_id_of_its_own(facts, broker_id, broker_runs, expected):
    assert bad(check_zookeeper(facts, broker_id, broker_runs=broker_runs)) == expected


@pytest.mark.parametrize(
    ("replicas", "brokers", "level"), [(1, 1, "ok"), (3, 3, "ok"), (3, 5, "ok"), (1, 2, "advice"), (3, 2, "problem")]
)
def test_replicas_fit_the_brokers(replicas, brokers, level):
    options = given(f"default.replication.factor={replicas}").options
    (first, *_) = check_replicas(options, brokers)
    assert (first.thing, first.level.value) == ("default.replication.factor", level)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, []),
        ({"trouble": "nobody answers"}, [("problem", "cluster at h:1")]),
        ({"silent": ("2 at h:2",)}, [("problem", "brokers")]),
        ({"unavailable": 1}, [("problem", "partitions without a leader")]),
        ({"under_replicated": 1}, [("problem", "under-replicated partitions")]),
        ({"offline_dirs": ("/a of broker 1",)}, [("problem", "offline data directories")]),
        ({"full_dirs": ("/a of broker 1",)}, [("problem", "full data directories")]),
        ({"damaged_dirs": ("2 in t-0 in /a",)}, [("problem", "damaged ranges of logs")]),
        ({"unknown_dirs": ("broker 1: no right",)}, [("advice", "data directories that are not told of")]),
        ({"on_one_broker": 1}, [("advice", "partitions with one replica")]),
        ({"on_one_broker": 1, "broker_ids": frozenset({1})}, []),
    ],
)
def test_a_cluster_is_judged_by_what_it_answers(facts, expected):
    assert bad(check_cluster(replace(CLUSTER, **facts))) == expected
