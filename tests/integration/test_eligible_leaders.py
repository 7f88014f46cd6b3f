"""Brokers fail one after another, and the last one comes back without its records: another that has them all leads.

The machine of a broker "loses its power" here by another `boot-id` in its data directory, and a log that was cut.
"""

import contextlib
import shutil
import subprocess

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.errors import MillraceError
from millrace.records.record import NewRecord
from millrace.zk import paths
from millrace.zk.eligibility import decode_damage, decode_eligibility, encode_damage
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.waiting import awaited
from millrace_support.zookeeper_sessions import started

TOPIC = "events"
ALL = {1, 2, 3}
WAITS = "events-0 has no leader"
EMPTY_OR_POWERLESS = pytest.mark.parametrize("loss", ["disk", "power"])


@pytest.fixture
def brokers(tmp_path, zookeeper):
    with broker_cluster(tmp_path, zookeeper.address, properties=PATIENT) as started_brokers:
        yield started_brokers


def create(brokers, min_isr):
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, 1, replication_factor=3, config={"min.insync.replicas": str(min_isr)})
    brokers.until(lambda one: set(one.isr) == ALL, TOPIC)


def send(brokers, *values, acks=-1):
    with Cluster(brokers.bootstrap) as cluster:
        SyncProducer(cluster).send(TOPIC, 0, [NewRecord(one) for one in values], acks=acks)
    return values


def lose(broker, loss):
    """Takes a stopped broker's disk, or its power: what was not synced is gone."""
    if loss == "disk":
        shutil.rmtree(broker.data_dir)
        return
    (broker.data_dir / "boot-id").write_text("another\n")
    (segment,) = broker.data_dir.glob(f"{TOPIC}-0/*.log")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)


def fail_one_after_another(brokers):
    """Kills all brokers, and writes between; returns what was acknowledged with acks=all, and the order of the ends."""
    sent, ended = list(send(brokers, *(b"all three %d" % number for number in range(50)))), []
    while len(ended) < 3:
        state = brokers.partition(TOPIC)
        killed = state.leader if len(ended) == 2 else min(set(state.isr) - {state.leader})
        ended.append(killed)
        brokers.crash(killed)
        if len(ended) == 1:
            brokers.until(lambda one: killed not in one.isr, TOPIC)  # noqa: B023
            sent += send(brokers, *(b"two %d" % number for number in range(50)))
        elif len(ended) == 2:
            brokers.until(lambda one: one.isr == (one.leader,), TOPIC)
            with contextlib.suppress(MillraceError):  # where two in sync are demanded
                sent += send(brokers, b"one")
            send(brokers, b"not promised", acks=1)
    return sent, ended


def log_of(brokers, *broker_ids):
    return "".join(brokers.brokers[one].read_log() for one in broker_ids)


def run(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def until_told(brokers, broker, text):
    awaited(lambda: text in log_of(brokers, broker) or None, f"broker {broker} tells: {text}")


@EMPTY_OR_POWERLESS
def test_the_one_with_all_committed_records_leads(brokers, loss):
    create(brokers, min_isr=2)
    sent, (first, second, last) = fail_one_after_another(brokers)
    lose(brokers.brokers[last], loss)
    brokers.brokers[last].start()
    until_told(brokers, last, f"{WAITS}: it waits for one of the brokers [{second}]")
    brokers.brokers[first].start()
    brokers.until(lambda one: one.leader == -1 and not one.isr, TOPIC)
    brokers.crash(last)  # the controller: the next one knows the same
    awaited(lambda: brokers.controller() == first or None, "the other one is the controller")
    with started(brokers.zookeeper) as session:
        (state,) = session.nodes([paths.partition_state(TOPIC, 0)])
        kept = decode_eligibility(session.get(paths.eligible(TOPIC, 0)), state.version)
    assert kept.eligible == (second,)
    assert (kept.empty if loss == "disk" else kept.doubtful) == (last,)
    brokers.brokers[second].start()
    brokers.until(lambda one: one.leader == second, TOPIC)
    brokers.brokers[last].start()
    brokers.until(lambda one: set(one.isr) == ALL, TOPIC)
    log = brokers.equal_logs(TOPIC)
    assert [one for one in sent if one not in log] == []


def test_a_command_says_what_is_lost_where_nobody_is_known_to_have_all(brokers, warm_millrace):
    """With a min ISR of one the last one in sync commits alone, and nobody else has that."""
    create(brokers, min_isr=1)
    sent, (first, second, last) = fail_one_after_another(brokers)
    lose(brokers.brokers[last], "disk")
    for each in (last, first, second):
        brokers.brokers[each].start()
    until_told(brokers, last, f"{WAITS}: no replica is known to have every committed record")
    brokers.until(lambda one: one.leader == -1 and not one.isr, TOPIC)
    elect = [warm_millrace, "brokers", "elect", "--topic", TOPIC, "--unclean", "--bootstrap", brokers.bootstrap]
    refused = run(elect)
    assert refused.returncode == 1
    assert "--yes confirms it" in refused.stderr
    assert brokers.partition(TOPIC).leader == -1
    told = run([*elect, "--yes"])
    assert f"broker {second} would lead, whose log ends at 100 (leader epoch" in told.stderr
    assert f"that of broker {first} ends at 50 (leader epoch" in told.stderr
    assert f"that of broker {last} ends at 0 (leader epoch -1)" in told.stderr
    brokers.until(lambda one: one.leader == second, TOPIC)
    brokers.until(lambda one: set(one.isr) == ALL, TOPIC)
    log = brokers.equal_logs(TOPIC)
    assert [one for one in sent if one not in log] == [b"one"]


def test_a_power_cut_of_all_needs_nobody(brokers):
    create(brokers, min_isr=2)
    send(brokers, b"first")
    brokers.crash(*ALL)
    for each in ALL:
        lose(brokers.brokers[each], "power")
    brokers.brokers[1].start()
    until_told(brokers, 1, f"{WAITS}: it waits for one of the brokers")
    brokers.brokers[2].start()
    brokers.brokers[3].start()
    brokers.until(lambda one: set(one.isr) == ALL, TOPIC)
    send(brokers, b"second")
    assert b"second" in brokers.equal_logs(TOPIC)


def test_all_disks_empty_need_nobody(brokers):
    create(brokers, min_isr=2)
    send(brokers, b"first")
    brokers.crash(*ALL)
    for each in ALL:
        lose(brokers.brokers[each], "disk")
        brokers.brokers[each].start()
    brokers.until(lambda one: set(one.isr) == ALL, TOPIC)
    send(brokers, b"second")
    log = brokers.equal_logs(TOPIC)
    assert b"second" in log
    assert b"first" not in log


def test_a_killed_process_has_lost_nothing(brokers):
    create(brokers, min_isr=2)
    sent, (_, _, last) = fail_one_after_another(brokers)
    brokers.brokers[last].start()
    brokers.until(lambda one: one.leader == last, TOPIC)
    for each in ALL - {last}:
        brokers.brokers[each].start()
    brokers.until(lambda one: set(one.isr) == ALL, TOPIC)
    log = brokers.equal_logs(TOPIC)
    assert [one for one in sent if one not in log] == []
    assert b"not promised" in log


def test_a_damaged_replica_is_elected_last(brokers):
    create(brokers, min_isr=2)
    (first, second, third) = brokers.partition(TOPIC).replicas
    with started(brokers.zookeeper) as session:
        session.put(paths.damage(second), encode_damage([(TOPIC, 0)]))
    brokers.crash(first)
    brokers.until(lambda one: one.leader not in {-1, first}, TOPIC)
    assert brokers.partition(TOPIC).leader == third
    brokers.crash(third)
    brokers.until(lambda one: one.leader == second, TOPIC)


@pytest.mark.broker_errors(r"segments\.damage_search: ", r"recovery\.loading: ")
def test_a_broker_names_its_damaged_logs(brokers):
    """Nobody else has the topic, so that it stays damaged."""
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, 1, replication_factor=1, config={"segment.bytes": "1000"})
        for number in range(20):
            SyncProducer(cluster).send(TOPIC, 0, [NewRecord(b"%0200d" % number)])
    leader = brokers.partition(TOPIC).leader
    with started(brokers.zookeeper) as session:
        assert not session.exists(paths.damage(leader))
        brokers.brokers[leader].stop()
        closed, *_ = sorted(brokers.brokers[leader].data_dir.glob(f"{TOPIC}-0/*.log"))
        with closed.open("r+b") as file:
            file.truncate(closed.stat().st_size // 2)
        brokers.brokers[leader].start()
        assert decode_damage(session.get(paths.damage(leader))) == {(TOPIC, 0)}
        with Cluster(brokers.bootstrap) as cluster:
            Admin(cluster).delete_topic(TOPIC)
        awaited(lambda: not session.exists(paths.damage(leader)) or None, "the damage is gone")
