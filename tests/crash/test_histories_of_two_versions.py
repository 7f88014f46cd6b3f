"""Histories of brokers of the last release and of this version, each of which becomes the other one: no anomaly.

The cluster begins as the last release. One broker after the other is stopped cleanly and started as this version, and
then back, while partitions move; after each comes a fault of `test_histories_of_clusters.py`, to whichever version
leads or controls. Java clients of two versions run beside those of librdkafka and aiokafka, and groups are coordinated
throughout.
"""

import itertools
from collections import Counter

import pytest
from cluster_faults import PLAN, started_as
from coordinated_groups import CoordinatedGroups
from observed_clusters import assert_none, assert_whole, happen, leaders_of_epochs, logs_kept, observed
from playing import CLUSTER_PROPERTIES, PARTITIONS, PATIENCE_S, TOPIC, history_of
from with_java import found, java_roles

from millrace.errors import SetupError
from millrace_support.former_release import former_broker
from millrace_support.relayed_clusters import relayed_cluster
from millrace_tools.histories.check import check
from millrace_tools.histories.events import Action
from millrace_tools.histories.finding import Anomaly

BETWEEN = {Action.SEND: 8, Action.TRANSACTION: 4, Action.POLL: 20, Action.COMMIT: 2}
VERSIONS = ("3.9", "4.1")
# 0.1.0 acknowledges what such a producer sends to one partition though its replicas may lack it (CHANGELOG.md).
LEFT_OUT = {"java-4.1-sender"}
MOST_ROLLS = 200
THIS = ("-m", "millrace_broker")


@pytest.fixture
def cluster(zookeeper, tmp_path):
    """Yields three brokers of the former release."""
    try:
        former = former_broker()
    except SetupError as error:
        pytest.skip(str(error))
    with (
        relayed_cluster(tmp_path, zookeeper.address, properties=CLUSTER_PROPERTIES, program=former) as started,
        logs_kept(started, tmp_path),
    ):
        yield started


@pytest.fixture
def java():
    """Yields the roles of Apache Kafka's clients."""
    if found(*VERSIONS) != list(VERSIONS):
        pytest.skip("Apache Kafka's clients are not in .peers")
    with java_roles(*VERSIONS) as roles:
        yield {name: role for name, role in roles.items() if name not in LEFT_OUT}


def rolls(former):
    """Returns (broker, program) for each roll: all brokers become this version, then the former one, and so on."""
    ways = itertools.cycle((THIS, former))
    return itertools.islice(((broker, program) for program in ways for broker in (1, 2, 3)), MOST_ROLLS)


@pytest.mark.peers
@pytest.mark.timeout(3600)
# The limit of a file is one for the log, too: what it says of it may be cut, or fail with a traceback.
@pytest.mark.broker_errors(r"storage\.failures", r"File too large", r"\AERROR [\w.]*\Z")
@pytest.mark.soak(rounds=4, minutes=20)
def test_the_history_of_two_versions_shows_no_anomaly(cluster, java, tmp_path, rounds, record_property):
    faults, ways = Counter(), Counter()
    with (
        (tmp_path / "history").open("w+") as file,
        CoordinatedGroups(cluster.bootstrap, TOPIC, PARTITIONS) as coordinated,
    ):
        with observed(cluster, file, java) as (recorder, mover, watches):
            coordinated.start()
            steps = zip(rounds, rolls(cluster.brokers[1].program), itertools.cycle(PLAN), strict=False)
            for _, (broker, program), (victim, fault) in steps:
                assert recorder.await_done(BETWEEN, PATIENCE_S), f"no progress after {ways} and {faults}"
                started_as(cluster, broker, program)
                ways["brokers updated" if program == THIS else "brokers taken back"] += 1
                assert recorder.await_done(BETWEEN, PATIENCE_S), f"no progress after {ways} and {faults}"
                happen(cluster, victim, fault, faults)
            assert recorder.await_done(BETWEEN, PATIENCE_S), f"no progress after {ways} and {faults}"
        coordinated.settle()
        assert_whole(cluster)
        operations = history_of(file)
    leaders = leaders_of_epochs(watches)
    assert_none(check(operations, allowed={Anomaly.WRITE_CYCLE}))
    outcomes = Counter(f"{operation.action} {operation.outcome}" for operation in operations)
    for counted in (ways, outcomes, faults, mover.outcomes, coordinated.outcomes()):
        for name, number in sorted(counted.items()):
            record_property(name, number)
    record_property("leader epochs", len(leaders))
