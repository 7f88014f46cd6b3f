"""Histories of three brokers, two of which must be in sync, while everything happens to them: no anomaly.

Brokers are killed, bounced and paused, networks between them and to ZooKeeper are cut, sessions expire, and partitions
are moved all the time. Each fault happens to a leader or to the controller. The clients are those of
`test_histories_under_faults.py`, and Apache Kafka's own, where `make peers` has brought it. In the end all replicas are
in sync, and have the same bytes.

Beside them the topic is loaded into a table again and again, and two groups that ZooKeeper coordinates consume it: one
tells what its members are handed, the other one feeds a downstream job. Of two groups that the brokers coordinate,
members come and go all the time, and in the end both settle.
"""

import itertools
from collections import Counter

import pytest
from cluster_faults import PLAN
from coordinated_groups import CoordinatedGroups
from group_beside import GroupBeside, group_findings
from job_beside import JobBeside
from observed_clusters import assert_none, assert_whole, happen, leaders_of_epochs, logs_kept, observed
from playing import CLUSTER_PROPERTIES, PARTITIONS, PATIENCE_S, TOPIC, history_of
from table_beside import TableBeside, differences
from with_java import found, java_roles

from millrace_pipelines.spark.session import local_master, spark_session
from millrace_support.relayed_clusters import relayed_cluster
from millrace_tools.histories.check import check
from millrace_tools.histories.events import Action, Outcome
from millrace_tools.histories.finding import Anomaly

BETWEEN = {Action.SEND: 8, Action.TRANSACTION: 4, Action.POLL: 20}
MOST_FAULTS = 200
FAULTS_OF_A_MEMBER = 3


@pytest.mark.timeout(3600)
# The limit of a file is one for the log, too: what it says of it may be cut, or fail with a traceback.
@pytest.mark.broker_errors(r"storage\.failures", r"File too large", r"\AERROR [\w.]*\Z")
@pytest.mark.soak(rounds=5, minutes=30)
def test_the_history_of_a_cluster_shows_no_anomaly(zookeeper, tmp_path, rounds, record_property):
    faults = Counter()
    with (
        spark_session("beside", local_master(2)) as spark,
        relayed_cluster(tmp_path, zookeeper.address, properties=CLUSTER_PROPERTIES) as cluster,
        (tmp_path / "history").open("w+") as file,
        logs_kept(cluster, tmp_path),
        TableBeside(cluster.bootstrap, TOPIC, tmp_path / "table", spark) as table,
        JobBeside(cluster, tmp_path / "output") as job,
        JobBeside(cluster, tmp_path / "output") as same_job,
        GroupBeside(cluster.zookeeper, TOPIC, PARTITIONS) as group,
        CoordinatedGroups(cluster.bootstrap, TOPIC, PARTITIONS) as coordinated,
        java_roles(*found("4.1")) as java,
    ):
        with observed(cluster, file, java) as (recorder, mover, watches):
            group.begin()
            coordinated.start()
            for _, (victim, fault) in zip(rounds, itertools.islice(itertools.cycle(PLAN), MOST_FAULTS), strict=False):
                assert recorder.await_done(BETWEEN, PATIENCE_S), f"no progress after {faults}"
                happen(cluster, victim, fault, faults)
                happen_beside((table, job, same_job), group, faults)
            assert recorder.await_done(BETWEEN, PATIENCE_S), f"no progress after {faults}"
        coordinated.settle()
        assert_whole(cluster)
        for each in (table, job, same_job):
            each.do_last()
        group.catch_up(file)
        operations, of_group = history_of(file), group.operations(file)
        assert table.audited() == []
        rows, output = list(table.rows()), list(job.rows())
    leaders = leaders_of_epochs(watches)
    assert_none(check(operations, allowed={Anomaly.WRITE_CYCLE}))
    assert_none(differences(operations, rows))
    assert_none(differences(operations, output))
    assert_none(group_findings(of_group))
    outcomes = Counter(f"{operation.action} {operation.outcome}" for operation in operations)
    assert outcomes[f"{Action.TRANSACTION} {Outcome.OK}"]
    assert outcomes[f"{Action.SEND} {Outcome.OK}"]
    owned = Counter(f"group's {step.action}s" for operation in of_group for step in operation.ownings())
    ended = (table.ends, job.ends + same_job.ends)
    for counted in (outcomes, faults, mover.outcomes, *ended, owned, coordinated.outcomes()):
        for name, number in sorted(counted.items()):
            record_property(name, number)
    record_property("leader epochs", len(leaders))
    record_property("rows of the table", len(rows))
    record_property("rows of the job", len(output))


def happen_beside(repeated, group, faults):
    """Starts loads and runs of the job after the first fault, and kills a member of the group after every third."""
    if faults.total() == 1:
        for each in repeated:
            each.start()
    if faults.total() % FAULTS_OF_A_MEMBER == 0:
        group.replace_oldest()
