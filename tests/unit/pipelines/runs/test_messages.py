"""What passes between a run and its child process is the same on both sides."""

import json
from dataclasses import fields

from millrace_pipelines.runs.jobs import (
    MESSAGE,
    WORK,
    Failed,
    LoadJob,
    Message,
    ReloadJob,
    Work,
    read_report,
    write_report,
)
from millrace_pipelines.spark.choices import Isolation, Reader
from millrace_pipelines.spark.errors import Accept
from millrace_pipelines.warehouse.choices import Compression, Mode
from millrace_pipelines.warehouse.keys.upsert import UpsertCounts
from millrace_pipelines.warehouse.ledger.plan import LostRange, Selection
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadedRange, LoadReport, ReloadReport

OPTIONS = LoadOptions(
    register="glue:demo.flights",
    topic="events",
    table="/tables/events",
    bootstrap="127.0.0.1:9092",
    client_config="client.properties",
    isolation=Isolation.READ_UNCOMMITTED,
    reader=Reader.SPARK_KAFKA,
    max_records_per_task=10,
    max_records_per_run=100,
    schema="events.json",
    columns={"timestamp": "sent_at"},
    mode=Mode.UPSERT,
    compression=Compression.ZSTD,
    deletion_vectors=True,
    commit_group=False,
    group="g",
    accept_lost_offsets=True,
    accept_recreated_topic=True,
    accept_truncated_log=True,
    accept_keyless_records=True,
    master="local[1]",
    spark_settings={"a": "b"},
    run_id="r",
)
SPAN = LoadedRange(0, 5, 14, 7, 1, 0, 0, 1)


def through_json(adapter, value):
    return adapter.validate_python(json.loads(json.dumps(adapter.dump_python(value, mode="json"))))


def test_no_option_is_left_out():
    plain = LoadOptions(topic="", table="", bootstrap="")
    assert [one.name for one in fields(LoadOptions) if getattr(OPTIONS, one.name) == getattr(plain, one.name)] == []


def test_jobs_arrive_as_they_were_sent():
    selection = Selection(partitions=(0, 2), from_offset=5, until_time_ms=9, until_table_begins=True)
    jobs = (LoadJob(key="a", options=OPTIONS), ReloadJob(key="b", options=OPTIONS, selection=selection))
    work = Work(jobs=jobs, master="local[2]", spark_settings={"spark.executor.memory": "2g"})
    arrived = through_json(WORK, work)
    assert arrived == work
    assert arrived.jobs[0].options.mode is Mode.UPSERT


def test_reports_arrive_as_they_were_sent():
    loaded = LoadReport(
        topic="events", table="/t", rows=7, ranges=(SPAN,), lost=(LostRange(0, 3, 5, "retention"),), lag={0: 1, 1: 2},
        version=4, upserted=UpsertCounts(inserted=1, updated=2, deleted=3, stale=4, keyless=5),
    )  # fmt: skip
    reloaded = ReloadReport(topic="events", table="/t", replaced=(SPAN,), backfilled=(SPAN,), rows=3)
    for job, report in (
        (LoadJob(key="a", options=OPTIONS), loaded),
        (ReloadJob(key="b", options=OPTIONS), reloaded),
    ):
        message = through_json(MESSAGE, Message(key="a", report=write_report(job, report)))
        assert read_report(job, message.report) == report


def test_failures_arrive_as_they_were_sent():
    failed = Failed(sentence="gone", error="OffsetsLostError", may_pass=False, option=Accept.LOST_OFFSETS)
    assert through_json(MESSAGE, Message(key="a", failed=failed)).failed == failed
