"""A broker with a fault that is planted in it: the checker of histories names it, by what its clients have seen.

The clients are those of `test_histories_under_faults.py`, the faults are `histories/faulty_broker.py`'s.
"""

import re
import time
from contextlib import suppress

import faulty_broker
import pytest
from cluster_faults import others
from coordinated_groups import CoordinatedGroups
from faulty_broker import FAULTS
from playing import CLUSTER_PROPERTIES, PARTITIONS, PATIENCE_S, PROPERTIES, TOPIC, history_of, playing
from with_java import found, java_roles

from millrace.client.replicas import ElectionType, elect_leaders
from millrace.errors import MillraceError
from millrace.testing.broker import BrokerProcess
from millrace_support.broker_clusters import create_replicated
from millrace_support.log_faults import faults
from millrace_support.relayed_clusters import relayed_cluster
from millrace_support.waiting import awaited
from millrace_tools.histories.check import check
from millrace_tools.histories.events import Action, read_history
from millrace_tools.histories.finding import Anomaly

READERS = ("confluent-assigned", "aiokafka-assigned")
SENDERS = ("confluent-sender", "aiokafka-sender")
TRANSACTORS = ("confluent-transactor", "aiokafka-transactor")
SENT, TRANSACTED = {Action.SEND: 20}, {Action.TRANSACTION: 20}
OF_CLUSTERS, OF_COORDINATORS = "waits_for_no_follower", "completes_before_it_releases"
KEY_ERROR = re.compile(r"KeyError: \d+")
LOST = {Anomaly.LOST_WRITE, Anomaly.INCONSISTENT_OFFSET}
FOUND = {
    "cuts_the_log": (Anomaly.INCONSISTENT_OFFSET, SENDERS, SENT),
    "loses_answers,checks_no_sequence": (Anomaly.DUPLICATE, SENDERS, SENT),
    "tells_of_no_abort": (Anomaly.ABORTED_READ, TRANSACTORS, TRANSACTED),
    "knows_no_stable_offset": (Anomaly.INTERMEDIATE_READ, TRANSACTORS, TRANSACTED),
    "skips_batches": (Anomaly.POLL_SKIP, SENDERS, SENT),
    "commits_by_halves": (Anomaly.LOST_WRITE, TRANSACTORS, TRANSACTED),
    "fences_no_one": (Anomaly.LOST_WRITE, (*SENDERS, "confluent-usurped"), SENT | {Action.TRANSACTION: 2}),
    "moves_commits_back": (
        Anomaly.LOST_COMMIT,
        ("confluent-sender", "first-member", "watcher"),
        {Action.COMMIT: 3, Action.COMMITTED: 40},
    ),
}


def findings_beside(tmp_path, fault, roles, counts, wanted=None, *, further=None):
    """Returns what is wrong with a history, which goes on until it shows the anomaly `wanted`, if one is given.

    A fault may need several clients at the same moment. What cuts the log does so after a kill. `further` has roles
    beside those of ROLES.
    """
    history, deadline = tmp_path / "history", time.monotonic() + PATIENCE_S
    with (
        BrokerProcess(tmp_path / "data", properties=PROPERTIES, program=(faulty_broker.__file__, fault)) as broker,
        history.open("w+", buffering=1) as file,
    ):
        with playing(broker, file, (*roles, *READERS), further=further) as recorder:
            assert recorder.await_done(counts, PATIENCE_S), broker.read_log()[-4000:]
            while wanted is not None and wanted not in anomalies_so_far(history) and time.monotonic() < deadline:
                if fault == "cuts_the_log":
                    broker.kill()
                    broker.start()
                assert recorder.await_done(counts, PATIENCE_S), broker.read_log()[-4000:]
        return check(history_of(file), allowed={Anomaly.WRITE_CYCLE})


def anomalies_so_far(history):
    """Returns what is wrong with a history that is being written, leaving out what nobody has read yet."""
    lines = history.read_text().splitlines(keepends=True)
    return anomalies_of(check(read_history(line for line in lines if line.endswith("\n")))) - {Anomaly.UNSEEN}


def anomalies_of(findings):
    return {finding.anomaly for finding in findings}


@pytest.mark.parametrize("fault", FOUND)
def test_a_planted_fault_is_found(tmp_path, fault):
    anomaly, roles, counts = FOUND[fault]
    assert anomaly in anomalies_of(findings_beside(tmp_path, fault, roles, counts, anomaly))


@pytest.mark.peers
@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_each_reader_in_java_shows_that_it_was_not_given_all(tmp_path, version):
    if not found(version):
        pytest.skip(f"Apache Kafka {version} is not in .peers")
    with java_roles(version) as java:
        findings = findings_beside(tmp_path, "skips_batches", SENDERS, SENT | {Action.COMMIT: 8}, further=java)
    told = "".join(one.message for one in findings if one.anomaly is Anomaly.POLL_SKIP)
    assert [role for role in java if role.endswith(("assigned", "member")) and f"poll of {role}-" not in told] == []


def test_lost_answers_alone_are_no_fault(tmp_path):
    assert findings_beside(tmp_path, "loses_answers", (*SENDERS, *TRANSACTORS), SENT | TRANSACTED) == []


def test_a_leader_that_waits_for_no_follower_is_found(zookeeper, tmp_path):
    """What it has acknowledged while the others were out of reach is gone with it.

    One whose session ends before it has acknowledged anything leads no more, and then it happens to another one.
    """
    program, history = (faulty_broker.__file__, OF_CLUSTERS), tmp_path / "history"
    deadline = time.monotonic() + PATIENCE_S
    with (
        relayed_cluster(tmp_path, zookeeper.address, properties=CLUSTER_PROPERTIES, program=program) as cluster,
        history.open("w+", buffering=1) as file,
    ):
        with playing(cluster, file, (*SENDERS, *READERS), replication_factor=3) as recorder:
            assert recorder.await_done(SENT, PATIENCE_S), cluster.read_log()[-4000:]
            broker = killed_behind_a_cut(cluster, recorder)
            while LOST.isdisjoint(anomalies_so_far(history)) and time.monotonic() < deadline:
                cluster.brokers[broker].start()
                cluster.all_in_sync()
                broker = killed_behind_a_cut(cluster, recorder)
        findings = anomalies_of(check(history_of(file), allowed={Anomaly.WRITE_CYCLE}))
    assert not LOST.isdisjoint(findings)


def killed_behind_a_cut(cluster, recorder):
    """Cuts a leader off, kills it after it took records, and returns its id once the others go on."""
    broker = awaited(lambda: leader_beside_controller(cluster), "a broker leads that is not the controller")
    cluster.cut_between(broker, others(cluster, broker))
    assert recorder.await_done({Action.SEND: 10}, PATIENCE_S), cluster.read_log()[-4000:]
    cluster.brokers[broker].kill()
    cluster.heal(breaks=True)  # an answer that is held back would bring records to a follower
    assert recorder.await_done(SENT, PATIENCE_S), cluster.read_log()[-4000:]
    return broker


def leader_beside_controller(cluster):
    """Returns a leader that is not the controller, which confirms its own changes of the ISR; None without one."""
    controller = cluster.controller()
    found = next((leader for leader in leaders(cluster) if leader != controller), None)
    if found is None:
        with suppress(MillraceError), cluster.connect() as client:
            elect_leaders(client, ElectionType.PREFERRED, None)
    return found


def leaders(cluster):
    return [cluster.until(lambda one: one.leader >= 0, TOPIC, partition).leader for partition in range(PARTITIONS)]


@pytest.mark.broker_errors(KEY_ERROR.pattern)
def test_a_purgatory_that_completes_twice_is_found(zookeeper, tmp_path):
    """The replicated records of groups go through it, while members join and leave."""
    program = (faulty_broker.__file__, OF_COORDINATORS)
    with (
        relayed_cluster(tmp_path, zookeeper.address, properties=CLUSTER_PROPERTIES, program=program) as cluster,
        CoordinatedGroups(cluster.bootstrap, TOPIC, PARTITIONS) as groups,
    ):
        with cluster.connect() as client:
            create_replicated(client, TOPIC, PARTITIONS, 3)
        groups.start()
        awaited(lambda: KEY_ERROR.search("\n".join(faults(cluster.read_log()))), "a purgatory fails")


def test_every_fault_is_planted():
    assert {name for names in (*FOUND, OF_CLUSTERS, OF_COORDINATORS) for name in names.split(",")} == FAULTS.keys()
