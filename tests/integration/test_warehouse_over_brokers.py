"""Loads, Spark queries and Dagster's runs go on through the death of the broker that leads what they read."""

import signal

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.spark.source import MillraceDataSource
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener, Step
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.declared import LOAD_ALL, cluster_of, definitions_of

pytestmark = pytest.mark.usefixtures("warm_loads")

TOPIC = "events"
BATCHES, BATCH = 16, 500
PROPERTIES = {"min.insync.replicas": "2", "auto.leader.rebalance.enable": "false", **PATIENT}


@pytest.fixture
def brokers(tmp_path, zookeeper):
    with broker_cluster(tmp_path / "brokers", zookeeper.address, properties=PROPERTIES) as started:
        with Cluster(started.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, 2, replication_factor=3)
        await_all_in_sync(started)
        yield started


def await_all_in_sync(brokers):
    for partition in range(2):
        brokers.until(lambda one: len(one.isr) == 3, TOPIC, partition)


def send(brokers):
    with Cluster(brokers.bootstrap) as cluster:
        for number in range(BATCHES):
            SyncProducer(cluster).send(TOPIC, number % 2, [NewRecord(b"v")] * BATCH)


class KillsALeader(SilentListener):
    """Stops the broker that leads partition 1 when the load is planned, and kills it as soon as a task is done.

    So tasks are left to do however late the kill comes. Another broker must come first in the bootstrap addresses.
    """

    def __init__(self, brokers, leader):
        self.brokers, self.leader = brokers, leader
        self.done_then = None

    def reached(self, step):
        if step is Step.PLANNED:
            self.brokers.brokers[self.leader].send_signal(signal.SIGSTOP)

    def tasks_done(self, done, total, records):
        if self.done_then is None and done:
            self.done_then = done, total
            self.brokers.crash(self.leader)


def dagsters_run(brokers, folder):
    """Runs a load and its checks in Dagster; returns whether the run succeeded, and whether each check passed."""
    millrace = MillraceResource(
        bootstrap=brokers.bootstrap,
        admin_url="http://127.0.0.1:9",
        warehouse_dir=str(folder),
        schema_dir=str(folder),
        master=local_master(1),
    )
    definitions = definitions_of(cluster_of(LOAD_ALL, TOPIC, schema_dir=str(folder)), millrace)
    key = dg.AssetKey(["millrace", "table", TOPIC])
    job = definitions.resolve_implicit_global_asset_job_def()
    checks = {each for each in job.asset_layer.asset_graph.asset_check_keys if each.asset_key == key}
    selected = job.get_subset(asset_selection={key}, asset_check_selection=checks)
    with dg.DagsterInstance.ephemeral() as instance:
        result = selected.execute_in_process(instance=instance, resources={"millrace": millrace}, raise_on_error=False)
    return result.success, {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


def kill_leader(brokers, partition):
    """Kills the leader of a partition and ends its session, so that another one is elected; returns its id."""
    leader = brokers.partition(TOPIC, partition).leader
    brokers.crash(leader)
    return leader


def bring_back(brokers, broker_id):
    brokers.brokers[broker_id].start()
    await_all_in_sync(brokers)


def test_the_death_of_a_leader(brokers, tmp_path):
    send(brokers)
    leader = brokers.partition(TOPIC, 1).leader
    by_others = sorted(brokers.brokers, key=lambda each: each == leader)
    options = LoadOptions(
        topic=TOPIC,
        table=str(tmp_path / TOPIC),
        bootstrap=",".join(brokers.brokers[each].bootstrap for each in by_others),
        master=local_master(1),
        max_records_per_task=BATCH,
    )
    listener = KillsALeader(brokers, leader)
    with spark_session("death", local_master(1)) as spark:
        assert load_topic(options, spark=spark, listener=listener).rows == BATCHES * BATCH
        done, total = listener.done_then
        assert 0 < done < total
        bring_back(brokers, leader)
        spark.dataSource.register(MillraceDataSource)
        query = spark.read.format("millrace").options(bootstrap=brokers.bootstrap, topic=TOPIC)
        killed = kill_leader(brokers, 0)
        assert query.load().count() == BATCHES * BATCH
    assert audit(options.table) == []

    bring_back(brokers, killed)
    send(brokers)
    kill_leader(brokers, 1)
    success, checks = dagsters_run(brokers, tmp_path)
    assert success
    assert all(checks.values()), checks
    assert audit(options.table) == []
