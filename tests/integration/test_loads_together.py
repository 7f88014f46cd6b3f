"""Loads that share a Spark job: whose task fails is told, and the others have their results."""

from contextlib import ExitStack
from functools import partial

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_pipelines.spark.brokers import TopicSource
from millrace_pipelines.spark.choices import Reader
from millrace_pipelines.spark.read import read_range
from millrace_pipelines.spark.session import SharedSession, local_master
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.store import lease
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load import together
from millrace_pipelines.warehouse.load.jobs import TableTasks
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.load.task import LoadSpec
from millrace_pipelines.warehouse.load.together import load_together, run_together

TOPICS = ("a", "b", "c")


@pytest.fixture(scope="module")
def spark(warm_loads):
    with SharedSession("tests", local_master(2)) as session:
        yield session


@pytest.fixture
def topics(broker):
    with Cluster(broker.bootstrap) as cluster:
        for topic in TOPICS:
            Admin(cluster).create_topic(topic, 1)
            SyncProducer(cluster).send(topic, 0, [NewRecord(b"%d" % number) for number in range(10)])
        yield cluster


def unreadable(*_):
    raise OSError("the network went away")


def test_a_task_that_fails_is_its_loads_alone(spark, broker, topics, tmp_path):
    source = TopicSource(broker.bootstrap, "a")
    folders = [tmp_path / name for name in TOPICS]
    reads = (partial(read_range, source), unreadable, partial(read_range, source))
    asked = []
    for folder, read in zip(folders, reads, strict=True):
        folder.mkdir()
        spec = LoadSpec(
            load_id="load", topic="a", table=str(folder), dead_letters_table=f"{folder}__dead", payload=None
        )
        asked.append(
            TableTasks(
                spec=spec, source=source, ranges=[OffsetRange(0, 0, 10)], reader=Reader.MILLRACE, read=read,
                max_records_per_task=4, on_progress=lambda *_: None,
            )
        )  # fmt: skip
    with ExitStack() as leases:
        for folder in folders:
            leases.enter_context(lease(str(folder), "load", OsFileSystem()))
        first, second, third = run_together(spark.get(), asked)
    assert [[result.range.from_offset for result in one] for one in (first, third)] == [[0, 3, 6]] * 2
    assert second is None


def options(broker, tmp_path, topic):
    return LoadOptions(topic=topic, table=f"{tmp_path}/{topic}", bootstrap=broker.bootstrap)


def test_a_job_that_fails_is_done_again_load_by_load(spark, broker, topics, tmp_path, monkeypatch):
    monkeypatch.setattr(together, "run_together", lambda _, loads: [None] * len(loads))
    outcomes = list(load_together([options(broker, tmp_path, topic) for topic in TOPICS], spark))
    assert [outcome.rows for _, outcome in outcomes] == [10, 10, 10]
    assert [audit(one.table) for one, _ in outcomes] == [[], [], []]


def test_a_large_load_has_a_job_of_its_own(spark, broker, topics, tmp_path, monkeypatch):
    alone = []
    run_alone = together.run_alone
    monkeypatch.setattr(together, "SMALL_OFFSETS", 10)
    monkeypatch.setattr(together, "run_alone", lambda at, asked: alone.append(asked.spec.topic) or run_alone(at, asked))
    SyncProducer(topics).send("b", 0, [NewRecord(b"one more")])
    outcomes = {
        one.topic: outcome for one, outcome in load_together([options(broker, tmp_path, t) for t in TOPICS], spark)
    }
    assert {topic: outcome.rows for topic, outcome in outcomes.items()} == {"a": 10, "b": 11, "c": 10}
    assert alone == ["b"]


def test_what_ends_the_caller_ends_all_loads_and_leaves_no_file(spark, broker, topics, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(together, "run_together", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(load_together([options(broker, tmp_path, topic) for topic in TOPICS], spark))
    assert [path for path in tmp_path.rglob("*") if path.suffix in (".parquet", ".lease")] == []
    monkeypatch.undo()
    outcomes = [outcome for _, outcome in load_together([options(broker, tmp_path, topic) for topic in TOPICS], spark)]
    assert [isinstance(outcome, LoadReport) and outcome.rows for outcome in outcomes] == [10, 10, 10]
