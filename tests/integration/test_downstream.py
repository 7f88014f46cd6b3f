"""Downstream jobs against a real broker and a real ZooKeeper: where they begin, end and share, and what stops them."""

import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import confluent_kafka
import dagster as dg
import psutil
import pytest

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.client.consumer import ConsumerConnector
from millrace.client.consumer.group_offsets import describe_zookeeper_group, open_session
from millrace.client.fetched import IsolationLevel
from millrace.errors import TopicExistsError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.zk import paths
from millrace_pipelines.defs.cluster import groups_asset, groups_check
from millrace_pipelines.defs.downstream import ConsumerGroupResource, micro_batch_asset
from millrace_pipelines.downstream import RunOptions, consume, output_rows, run_workers
from millrace_pipelines.downstream.job import JobError
from millrace_pipelines.downstream.output import Output
from millrace_pipelines.spark.errors import OffsetsLostError, TopicRecreatedError
from millrace_support.downstream_jobs import listed
from millrace_support.waiting import until

PARTITIONS = 4
SESSION_TIMEOUT_MS = 30_000
KILLED_BETWEEN = """
import os, sys
from millrace_pipelines.downstream import RunOptions, consume
from millrace_support.downstream_jobs import listed
zookeeper, bootstrap, output = sys.argv[1:]
consume(listed, RunOptions(zookeeper=zookeeper, bootstrap=bootstrap, output=output, session_timeout_ms=2000),
        lambda _: os._exit(9))
"""


RUN_OF_GATED = """
import sys
from millrace_pipelines.downstream import RunOptions, run_workers
from millrace_support.downstream_jobs import gated
zookeeper, bootstrap, output = sys.argv[1:]
run_workers(gated, RunOptions(zookeeper=zookeeper, bootstrap=bootstrap, output=output))
"""


@pytest.fixture
def connect(zookeeper, tmp_path):
    return f"{zookeeper.address}/{tmp_path.name}"


@pytest.fixture
def broker(connect, tmp_path):
    with BrokerProcess(tmp_path / "broker", zookeeper=connect) as broker:
        yield broker


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("words", PARTITIONS)
        yield cluster


@pytest.fixture
def options(connect, broker, tmp_path):
    return RunOptions(
        zookeeper=connect,
        bootstrap=broker.bootstrap,
        output=str(tmp_path / "output"),
        session_timeout_ms=SESSION_TIMEOUT_MS,
    )


def produce(cluster, *values, partitions=range(PARTITIONS)):
    for partition in partitions:
        SyncProducer(cluster).send("words", partition, [NewRecord(value.encode()) for value in values])


def found(options):
    """How often each record is in the output."""
    return Counter((row["partition"], row["offset"], row["value"]) for row in output_rows(options.output).to_pylist())


def expected(*values, partitions=range(PARTITIONS)):
    return Counter((partition, offset, value) for partition in partitions for offset, value in enumerate(values))


def group_offsets(options, group="listed"):
    session = open_session(options.zookeeper)
    try:
        return {one.number: offset for one, offset in describe_zookeeper_group(session, group).offsets.items()}
    finally:
        session.close()


def await_stable(cluster, offset):
    """Until the markers of ended transactions are in the logs."""
    consumer = SimpleConsumer(cluster)
    for one in range(PARTITIONS):
        until(lambda one=one: consumer.latest("words", one, IsolationLevel.READ_COMMITTED) >= offset)


def test_a_run_takes_what_is_there_and_the_next_one_what_is_new(cluster, options):
    produce(cluster, "a", "b")
    commits = []
    assert consume(listed, options, commits.append)
    assert found(options) == expected("a", "b")
    assert consume(listed, options, commits.append)
    produce(cluster, "c")
    assert consume(listed, options, commits.append)
    assert found(options) == expected("a", "b", "c")
    assert sum(part.records for commit in commits for part in commit.ranges) == 3 * PARTITIONS
    assert group_offsets(options) == dict.fromkeys(range(PARTITIONS), 3)


def kill_between(options):
    """Kills a worker between the commit of the output and that of the group."""
    command = [sys.executable, "-c", KILLED_BETWEEN, options.zookeeper, options.bootstrap, options.output]
    path = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    assert subprocess.run(command, check=False, timeout=120, env=path).returncode == 9


def test_a_crash_between_the_outputs_commit_and_the_groups_repeats_nothing(cluster, options):
    produce(cluster, "a", "b")
    kill_between(options)
    assert found(options)
    assert group_offsets(options) == {}
    produce(cluster, "c")
    assert consume(listed, options)
    assert found(options) == expected("a", "b", "c")
    assert group_offsets(options) == dict.fromkeys(range(PARTITIONS), 3)


def test_the_outputs_offsets_decide_wherever_the_groups_are(cluster, options):
    produce(cluster, "a", "b", "c")
    assert consume(listed, options)
    first = replace(options, output=options.output + "_second")
    assert consume(listed, first)  # the group is at the end, this output is empty
    assert found(first) == found(options) == expected("a", "b", "c")


def test_a_rebalance_in_the_middle_of_a_batch_loses_and_doubles_nothing(cluster, options):
    produce(cluster, *map(str, range(50)))
    is_working, may_go_on, calls = threading.Event(), threading.Event(), []

    def slow(before, messages):
        is_working.set()
        assert may_go_on.wait(300)
        calls.append(messages[0].partition)
        return listed.process(before, messages)

    first = threading.Thread(target=consume, args=(replace(listed, process=slow), options))
    first.start()
    assert is_working.wait(60)
    while not found(options):  # the second one takes its share meanwhile
        assert consume(listed, replace(options, max_seconds=4)) in {True, False}
    taken = {partition for partition, _, _ in found(options)}
    assert taken
    may_go_on.set()
    first.join(300)
    assert found(options) == expected(*map(str, range(50)))
    assert set(calls) | taken == set(range(PARTITIONS))


def test_markers_and_aborted_records_are_passed_over(cluster, options):
    producer = confluent_kafka.Producer({"bootstrap.servers": options.bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    for value, end in ((b"a", producer.commit_transaction), (b"x", producer.abort_transaction)):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("words", value, partition=partition)
        producer.flush()  # an abort drops what is not sent
        end()
    await_stable(cluster, 4)
    assert consume(listed, options)
    assert found(options) == expected("a")
    assert group_offsets(options) == dict.fromkeys(range(PARTITIONS), 4)


def test_records_that_retention_deleted_stop_the_job_until_that_is_accepted(cluster, options):
    produce(cluster, "a")
    assert consume(listed, options)
    produce(cluster, "b", "c")
    Admin(cluster).delete_records("words", 0, 2)
    with pytest.raises(OffsetsLostError, match="partition 0: 1-1"):
        consume(listed, options)
    assert consume(listed, replace(options, accept_lost_offsets=True))
    assert found(options) == expected("a", "b", "c") - Counter([(0, 1, "b")])


def test_a_partition_that_is_added_during_a_run_is_processed_from_its_first_record(cluster, options):
    produce(cluster, "a")
    more = {**dict.fromkeys(range(PARTITIONS), 1), PARTITIONS: 2}
    added = []

    def add(_):
        if not added:
            added.append(Admin(cluster).create_partitions("words", PARTITIONS + 1))
            produce(cluster, "b", "c", partitions=[PARTITIONS])

    assert consume(listed, options, add, targets=more)
    assert found(options) == expected("a") + expected("b", "c", partitions=[PARTITIONS])


def test_records_that_are_deleted_during_a_run_stop_it_in_words_or_are_passed_over_where_that_is_accepted(
    cluster, options, monkeypatch
):
    produce(cluster, "a", "b", "c")
    claimed = Output.positions

    def delete_first(output, partitions):
        Admin(cluster).delete_records("words", 0, 2)
        return claimed(output, partitions)

    monkeypatch.setattr(Output, "positions", delete_first)
    with pytest.raises(OffsetsLostError, match="partition 0: 0-1"):
        consume(listed, options)
    elsewhere = replace(options, output=options.output + "_second", accept_lost_offsets=True)
    recreate(cluster)
    produce(cluster, "a", "b", "c")
    assert consume(listed, elsewhere)
    assert found(elsewhere) == expected("a", "b", "c") - Counter([(0, 0, "a"), (0, 1, "b")])


def recreate(cluster):
    former = cluster.metadata(["words"]).topic("words").topic_id
    Admin(cluster).delete_topic("words")
    with suppress(TopicExistsError):  # by an attempt of the client whose answer was lost
        Admin(cluster).create_topic("words", PARTITIONS)
    assert cluster.metadata(["words"]).topic("words").topic_id != former


def test_a_topic_that_was_recreated_is_another_topic(cluster, options):
    produce(cluster, "a")
    assert consume(listed, options)
    recreate(cluster)
    with pytest.raises(TopicRecreatedError):
        consume(listed, options)


def test_several_processes_share_the_partitions_and_report(cluster, options):
    produce(cluster, *map(str, range(100)))
    report = run_workers(listed, options, workers=2)
    assert found(options) == expected(*map(str, range(100)))
    assert (report.records, report.lag, report.failures) == (100 * PARTITIONS, 0, ())
    assert [part[:3] for part in report.offsets] == [(partition, 0, 100) for partition in range(PARTITIONS)]
    assert run_workers(listed, options, workers=2).workers == 0


def test_a_bad_record_fails_the_run_in_words_and_what_is_good_stays(cluster, options):
    produce(cluster, "a", "b", partitions=[0, 1])
    produce(cluster, "bad", partitions=[2])
    small = replace(listed, max_records=1)
    with pytest.raises(JobError, match=r"words-2, offsets 0 to 0: .* ValueError: a bad value"):
        consume(small, options)
    with pytest.raises(JobError, match=r"listed: worker \d: .*words-2.*a bad value"):
        run_workers(listed, options, workers=1)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(cluster, options, tmp_path, end):
    Admin(cluster).create_topic("gates", 1)
    SyncProducer(cluster).send("gates", 0, [NewRecord(str(tmp_path).encode())])
    command = [sys.executable, "-c", RUN_OF_GATED, options.zookeeper, options.bootstrap, options.output]
    run = subprocess.Popen(command, env={"PYTHONPATH": ":".join(filter(None, sys.path))})
    until(lambda: (tmp_path / "pid").exists() or run.poll() is not None)
    assert run.poll() is None
    worker = psutil.Process(int((tmp_path / "pid").read_text()))
    assert worker.pid != run.pid
    run.send_signal(end)
    assert run.wait(60) in {-end, 1}
    worker.wait(60)


def materialized(options, **config):
    resource = ConsumerGroupResource(
        zookeeper=options.zookeeper,
        bootstrap=options.bootstrap,
        output_dir=options.output,
        session_timeout_ms=SESSION_TIMEOUT_MS,
    )
    asset = micro_batch_asset(listed, workers=2)
    return dg.materialize(
        [asset],
        resources={"millrace_consumer_groups": resource},
        run_config={"ops": {"listed": {"config": config}}},
        raise_on_error=False,
    )


def test_an_asset_brings_its_output_up_to_date_and_says_what_it_did(cluster, options):
    produce(cluster, "a", "b")
    for records, workers in ((2 * PARTITIONS, 2), (0, 0)):
        result = materialized(options)
        [event] = result.asset_materializations_for_node("listed")
        shown = {name: value.value for name, value in event.metadata.items()}
        assert (shown["records"], shown["lag"], shown["workers"]) == (records, 0, workers)
        assert isinstance(shown["seconds"], int)
    assert found(replace(options, output=f"{options.output}/listed")) == expected("a", "b")


def ownership(options):
    resource = ConsumerGroupResource(
        zookeeper=options.zookeeper, bootstrap=options.bootstrap, output_dir=options.output
    )
    result = dg.materialize(
        [groups_asset("lake"), groups_check("lake")],
        selection=dg.AssetSelection.checks_for_assets(groups_asset("lake").key),
        resources={"lake_consumer_groups": resource},
    )
    [evaluation] = result.get_asset_check_evaluations()
    return evaluation


def test_a_check_says_which_partitions_have_no_live_owner(cluster, options, monkeypatch):
    monkeypatch.setattr("millrace_pipelines.defs.cluster.PAUSE_S", 0.1)
    properties = {
        "group.id": "readers",
        "zookeeper.connect": options.zookeeper,
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "zookeeper.connection.timeout.ms": str(SESSION_TIMEOUT_MS),
        "rebalance.max.retries": "100",
    }
    with ConsumerConnector(properties) as first, ConsumerConnector(properties) as second:
        first.create_message_streams({"words": 1})
        second.create_message_streams_by_filter(whitelist="wor.*")
        passed = ownership(options)
        assert passed.passed
        assert (passed.metadata["live members"].value, passed.metadata["partitions owned"].value) == (2, PARTITIONS)
    assert ownership(options).passed
    session = open_session(options.zookeeper)
    session.create(paths.owner("readers", "words", 3), b"readers_gone-0")
    session.close()
    failed = ownership(options)
    assert not failed.passed
    assert "group readers: words-3 is held for readers" in failed.metadata["findings"].value


def test_an_assets_failure_is_the_jobs_own_sentence_and_is_not_tried_again(cluster, options):
    produce(cluster, "bad", partitions=[1])
    result = materialized(options, workers=1)
    [failure] = result.get_step_failure_events()
    assert "words-1, offsets 0 to 0: the job's function failed: ValueError: a bad value" in str(failure)
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


@pytest.fixture
def alone(broker_without_zookeeper, tmp_path):
    """Options for a broker beside which there is no ZooKeeper; its topic `words` is there."""
    with Cluster(broker_without_zookeeper.bootstrap) as cluster:
        Admin(cluster).create_topic("words", PARTITIONS)
    return RunOptions(zookeeper="", bootstrap=broker_without_zookeeper.bootstrap, output=str(tmp_path / "output"))


@pytest.fixture
def broker_without_zookeeper(tmp_path):
    with BrokerProcess(tmp_path / "broker") as broker:
        yield broker


def test_without_a_zookeeper_a_run_shares_the_partitions_out(alone):
    with Cluster(alone.bootstrap) as cluster:
        produce(cluster, "a", "b")
        lines = []
        report = run_workers(listed, alone, workers=2, on_line=lambda number, line: lines.append((number, line)))
        assert (report.records, report.lag, report.workers, report.failures) == (2 * PARTITIONS, 0, 2, ())
        assert {(number, part[0]) for number, line in lines for part in line.get("ranges", ())} == {
            *((0, 0), (1, 1), (0, 2), (1, 3))
        }
        produce(cluster, "c")
        assert consume(listed, alone)
        assert run_workers(listed, alone, workers=2).workers == 0
    assert found(alone) == expected("a", "b", "c")


def test_without_a_zookeeper_a_killed_worker_leaves_its_part_to_the_next_run(alone):
    with Cluster(alone.bootstrap) as cluster:
        produce(cluster, "a", "b")
    kill_between(alone)
    assert consume(listed, alone)
    assert found(alone) == expected("a", "b")


def test_without_a_zookeeper_aborted_records_and_markers_are_passed_over(alone):
    producer = confluent_kafka.Producer({"bootstrap.servers": alone.bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    for value, end in (("a", producer.commit_transaction), ("lost", producer.abort_transaction)):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("words", value, partition=partition)
        producer.flush()
        end()
    with Cluster(alone.bootstrap) as cluster:
        await_stable(cluster, 4)
    assert run_workers(listed, alone, workers=3).lag == 0
    assert found(alone) == expected("a")


def test_without_a_zookeeper_two_runs_at_the_same_time_double_nothing(alone):
    with Cluster(alone.bootstrap) as cluster:
        produce(cluster, *(str(number) for number in range(2_000)))
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lambda _: consume(listed, alone), range(2)))
    assert found(alone) == expected(*(str(number) for number in range(2_000)))
