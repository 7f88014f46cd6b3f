"""The load's one Spark job: a task for each range, its progress polled while it runs.

Nothing here needs a SparkContext, so that a session of Spark Connect serves as well. Progress comes from the context's
status tracker and an accumulator where there is a context, else from Connect's own reports. A task runs in another
process, perhaps on another machine, and therefore opens its own disk.

Spark's own Kafka connector may be the reader: the JVM fetches and decodes, the task writes as with Millrace's client.

The connector must be on Spark's class path (`spark-sql-kafka-0-10` and what it needs). It cuts the ranges into tasks by
itself and does not tell a task which range it has, nor why an offset has no record. So a task answers with the offsets
that it met, and the driver joins the answers of each planned range.

Kafka's client properties become options of the connector, without a secret among them:

    a file's property       kafka.ssl.truststore.location = /etc/ca.pem
    a secret in the file    kafka.sasl.jaas.config        = ${file:/etc/client.properties:sasl.jaas.config}
    a secret in a variable  kafka.sasl.jaas.config        = ${env:MILLRACE_SASL_JAAS_CONFIG}
    a PEM file of its own   kafka.ssl.keystore.key        = ${directory:/etc:client.key}

The client in the JVM of each task puts the secret in place by Kafka's configuration providers (KIP-297, 421, 887), so
Spark's plan, its logs and its pages have the name of the file only.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import Accumulator, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, lit

from millrace.errors import InvalidConfigError, RecordError
from millrace.fs import FileSystem
from millrace.records.arrow_columns import RECORD_SCHEMA, HeaderParts, has_no_time, record_batch, times_of
from millrace.security.client_config import ENV, SEND, VARIABLE, properties_of_environment, properties_of_file
from millrace.security.client_security import (
    CERTIFICATE_FILE,
    CHAIN,
    KEY,
    KEY_FILE,
    KEYSTORE_TYPE,
    PASSWORD,
    PROTOCOL,
    SECRETS,
    SYNONYMS,
    TRUSTSTORE_TYPE,
    USERNAME,
    login_module,
)
from millrace.security.protocols import IDENTIFICATION, JAAS, MECHANISM
from millrace_pipelines.arrow import Column, Lists, offsets_array
from millrace_pipelines.machine import DISK
from millrace_pipelines.spark.brokers import TopicSource
from millrace_pipelines.spark.choices import Reader
from millrace_pipelines.spark.collecting import cancelled_on_interrupt, cause_of, collected
from millrace_pipelines.spark.errors import Accept
from millrace_pipelines.spark.executors import what_executors_lack
from millrace_pipelines.spark.read import ReadBlock
from millrace_pipelines.spark.session import cores_of, is_remote
from millrace_pipelines.warehouse.errors import ExecutorSetupError, FolderNotSharedError, LoadFailedError
from millrace_pipelines.warehouse.ledger.plan import OffsetRange, records_per_task, split_ranges
from millrace_pipelines.warehouse.load.task import LoadSpec, ReadRange, TaskResult, load_range
from millrace_pipelines.warehouse.stores.leases import sees_lease
from millrace_pipelines.warehouse.stores.options import carrying
from millrace_pipelines.warehouse.table.lineage import merged, packed, unpacked
from millrace_pipelines.warehouse.task_table import ONE_FOLDER

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

POLL_INTERVAL_S = 0.2
RESULT = "result string"
OnProgress = Callable[[int, int], None]
PROVIDERS = {
    "config.providers": "file,directory,env",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}
PEM_FILES = {CERTIFICATE_FILE: CHAIN, KEY_FILE: KEY}
HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTasks:
    """What one load asks Spark for: ranges of a topic, which tasks read into files of its table.

    Attributes:
        spec: What all tasks of the load share.
        source: The topic.
        ranges: What is to be read.
        reader: Who fetches and decodes.
        read: Gives the records of a range, inside a task; Spark's connector reads without it.
        max_records_per_task: The largest number of offsets in a task.
        on_progress: Takes the number of finished tasks, that of all, and of the records read.
    """

    spec: LoadSpec
    source: TopicSource
    ranges: Sequence[OffsetRange]
    reader: Reader
    read: ReadRange
    max_records_per_task: int
    on_progress: Callable[[int, int, int], None]

    @property
    def offsets(self) -> int:
        """Returns how many offsets the ranges have."""
        return sum(offset_range.offsets for offset_range in self.ranges)


def run_alone(spark: SparkSession, asked: TableTasks) -> list[TaskResult]:
    """Runs the tasks of one load as a job of its own, cut so that no core is idle; raises LoadFailedError."""
    max_records = records_per_task(asked.ranges, cores_of(spark), asked.max_records_per_task)
    tasks = split_ranges(asked.ranges, max_records)

    def on_progress(done: int, records: int) -> None:
        asked.on_progress(done, len(tasks), records)

    if asked.reader is Reader.SPARK_KAFKA:
        return run_kafka_tasks(
            spark, asked.ranges, asked.spec, asked.source, max_records_per_task=max_records, on_progress=on_progress
        )
    return run_tasks(spark, tasks, asked.spec, asked.read, on_progress)


def run_tasks(
    spark: SparkSession, tasks: Sequence[OffsetRange], spec: LoadSpec, read: ReadRange, on_progress: OnProgress
) -> list[TaskResult]:
    """Loads each range in its own Spark task and returns the tasks' results.

    Args:
        spark: Where the tasks run.
        tasks: A range for each task.
        spec: What all tasks share.
        read: Gives the records of a range, inside the task.
        on_progress: Takes the number of finished tasks and of the records that they read, every POLL_INTERVAL_S, on
            another thread.

    Raises:
        LoadFailedError: A task failed at all of its attempts.
    """
    records = None if is_remote(spark) else spark.sparkContext.accumulator(0)

    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in map(int, batch.column(0).to_numpy()):
                result = attempted(tasks[task], spec, read, task)
                if records is not None:
                    records.add(result.records)
                yield pa.RecordBatch.from_arrays([pa.array([result.to_json()])], names=["result"])

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(carrying(attempt), RESULT)
    with _followed(spark, spec.load_id, records, on_progress), cancelled_on_interrupt(spark, spec.load_id):
        results = collect_results(frame, spec.topic)
    on_progress(len(tasks), sum(result.records for result in results))
    return results


def attempted(
    offset_range: OffsetRange, spec: LoadSpec, read: ReadRange, task: int, fs: FileSystem = DISK
) -> TaskResult:
    """Loads a range; returns as a result what another attempt would find again, as Spark's error is long.

    That is a damaged log, whose files the load removes, and a folder that is not the table's: a file in it would stay
    on the executor for ever.
    """
    if not sees_lease(spec.table, spec.load_id, fs):
        return TaskResult(range=offset_range, records=0, refusal=f"{socket.gethostname()} does not see {spec.table}")
    try:
        return load_range(offset_range, spec, read, task=task, fs=fs)
    except RecordError as error:
        return TaskResult(range=offset_range, records=0, damage=str(error))
    except PermissionError as error:
        return TaskResult(range=offset_range, records=0, refusal=f"{socket.gethostname()} may not write: {error}")


def collect_results(frame: DataFrame, topic: str) -> list[TaskResult]:
    """Runs the tasks of a data frame and returns their results.

    Raises LoadFailedError where it fails or the log is damaged, FolderNotSharedError where an executor can't write,
    ExecutorSetupError where one lacks what tasks are made of.
    """
    try:
        rows = collected(frame)
    except (PySparkException, Py4JError) as error:
        if lacking := what_executors_lack(str(error)):
            raise ExecutorSetupError(f"loading {topic}: {lacking}") from error
        raise LoadFailedError(f"loading {topic}: {cause_of(str(error))}") from error
    return checked([TaskResult.from_json(row.result) for row in rows], topic)


def checked(results: list[TaskResult], topic: str) -> list[TaskResult]:
    """Returns the results; raises LoadFailedError or FolderNotSharedError where one says that nothing was written."""
    for result in results:
        if result.refusal:
            raise FolderNotSharedError(f"loading {topic}: Spark's executor on {result.refusal}; {ONE_FOLDER}")
        if result.damage:
            raise LoadFailedError(f"{result.damage}; {Accept.LOST_OFFSETS.flag} of a load goes on behind it")
    return results


def _followed(
    spark: SparkSession, load_id: str, records: Accumulator[int] | None, on_progress: OnProgress
) -> AbstractContextManager[None]:
    if records is None:
        return _reported(spark, on_progress)
    context = spark.sparkContext
    context.setJobGroup(load_id, f"load {load_id}", interruptOnCancel=True)
    return _polled(lambda: on_progress(_tasks_done(context, load_id), records.value))


@contextmanager
def _reported(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    """Registers `on_progress` for the number of finished tasks that Spark Connect reports; records count 0."""

    def handle(*, stages: Iterable[StageInfo] | None, **_: object) -> None:
        on_progress(sum(stage.num_completed_tasks for stage in stages or ()), 0)

    handler = cast("ProgressHandler", handle)  # Spark calls any function, though it names a class
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


def _tasks_done(context: SparkContext, group: str) -> int:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


@contextmanager
def _polled(poll: Callable[[], None]) -> Iterator[None]:
    """Calls `poll` every POLL_INTERVAL_S on a thread."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(POLL_INTERVAL_S):
            poll()

    thread = threading.Thread(target=run, name="load-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def kafka_security(source: TopicSource, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the options by which Spark's Kafka connector secures its connections; none where nothing is secured.

    Raises InvalidConfigError for settings that the connector's options can't express.
    """
    source.security.read()  # which checks them all
    client_config = source.security.client_config or environment.get(VARIABLE)
    if client_config and client_config.startswith((ENV, SEND)):
        raise InvalidConfigError(f"{client_config}: the reader spark-kafka takes a file, which its tasks read")
    path = os.path.abspath(client_config) if client_config else ""
    values = properties_of_file(path, environment) if path else {}
    told = {name: f"${{file:{path}:{name}}}" if name in SECRETS else value for name, value in values.items()}
    for name, (variable, value) in properties_of_environment(environment).items():
        values[name] = value
        told[name] = f"${{env:{variable}}}" if name in SECRETS else value
    if not told:
        return {}
    named = _with_kafkas_names(told, values)
    return {f"kafka.{name}": value for name, value in {**named, **PROVIDERS}.items()}


def _with_kafkas_names(told: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Returns properties under Kafka's names, in place of those that librdkafka alone has (`ssl.ca.location`)."""
    named = {SYNONYMS.get(name, name): value for name, value in told.items()}
    named[PROTOCOL] = named[PROTOCOL].upper()
    if "ssl.ca.location" in told:
        named.setdefault(TRUSTSTORE_TYPE, "PEM")
    if named.get(IDENTIFICATION) == "none":
        named[IDENTIFICATION] = ""
    for name, to in PEM_FILES.items():
        if name in named:
            path = Path(named.pop(name)).absolute()
            named[to] = f"${{directory:{path.parent}:{path.name}}}"
            named[KEYSTORE_TYPE] = "PEM"
    if USERNAME in named:
        if set('"\\') & set(values[USERNAME] + values[PASSWORD]):
            raise InvalidConfigError(f'{PASSWORD}: with " or \\ in it, the reader spark-kafka needs {JAAS} instead')
        module = login_module(named[MECHANISM])
        named[JAAS] = f'{module} required username="{named.pop(USERNAME)}" password="{named.pop(PASSWORD)}";'
    return named


def run_kafka_tasks(
    spark: SparkSession,
    ranges: Sequence[OffsetRange],
    spec: LoadSpec,
    source: TopicSource,
    *,
    max_records_per_task: int,
    on_progress: OnProgress,
) -> list[TaskResult]:
    """Loads every range through Spark's Kafka connector and returns a result for each.

    A job has one range of each partition, for the connector names a partition's range only once: several ranges of a
    partition are read one after the other.

    Raises:
        LoadFailedError: A job failed, or two of its tasks met the same offsets.
    """
    answers: list[TaskResult] = []
    for some in one_of_each_partition(ranges):
        rows = _rows(spark, some, source, max_records_per_task)
        answers += _run_job(rows, some, spec, on_progress)
    return answers


def one_of_each_partition(ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
    """Returns the ranges in rounds: the first range of each partition, then the second ones, and so on."""
    rounds: list[list[OffsetRange]] = []
    seen: Counter[int] = Counter()
    for offset_range in ranges:
        if seen[offset_range.partition] == len(rounds):
            rounds.append([])
        rounds[seen[offset_range.partition]].append(offset_range)
        seen[offset_range.partition] += 1
    return rounds


def _run_job(
    rows: DataFrame, ranges: Sequence[OffsetRange], spec: LoadSpec, on_progress: OnProgress
) -> list[TaskResult]:
    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        for first in filled:
            partition = first.column(0)[0].as_py()
            blocks = (ReadBlock(_records(batch)) for batch in chain([first], filled))
            context = TaskContext.get()
            number = 0 if context is None else context.partitionId()
            answer = attempted(OffsetRange(partition, 0, 0), spec, lambda *_, blocks=blocks: blocks, number)
            yield pa.RecordBatch.from_arrays([pa.array([answer.to_json()])], names=["result"])

    frame = rows.mapInArrow(carrying(attempt), RESULT)
    answers = collect_results(frame, spec.topic)
    on_progress(len(answers), sum(answer.records for answer in answers))
    return [_together(offset_range, [answer for answer in answers if answer.range.partition == offset_range.partition])
            for offset_range in ranges]  # fmt: skip


def _rows(
    spark: SparkSession, ranges: Sequence[OffsetRange], source: TopicSource, max_records_per_task: int
) -> DataFrame:
    """Returns a data frame of the ranges' records: the column of the partition, then the columns of a record."""
    options = {
        **kafka_security(source),
        "kafka.bootstrap.servers": source.bootstrap,
        "kafka.isolation.level": str(source.isolation),
        "assign": json.dumps({source.topic: [offset_range.partition for offset_range in ranges]}),
        "startingOffsets": json.dumps(
            {source.topic: {str(offset_range.partition): offset_range.from_offset for offset_range in ranges}}
        ),
        "endingOffsets": json.dumps(
            {source.topic: {str(offset_range.partition): offset_range.until_offset for offset_range in ranges}}
        ),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "maxRecordsPerPartition": str(max_records_per_task),
    }
    rows = spark.read.format("kafka").options(**options).load()
    headers = coalesce(col("headers"), lit([]).cast(HEADERS))
    return rows.select("partition", "offset", "timestamp", "key", "value", headers.alias("headers"))


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch without its partition column, in the form of Millrace's own reader (`RECORD_SCHEMA`)."""
    offsets, timestamps, keys, values, headers = (
        column.cast(kind) for column, kind in zip(batch.columns[1:], RECORD_SCHEMA.types, strict=True)
    )
    milliseconds = timestamps.cast(pa.int64()).to_numpy() // 1000
    return record_batch(offsets, times_of(milliseconds, has_no_time(milliseconds)), keys, values, _parts(headers))


def _parts(headers: Column) -> HeaderParts:
    lists = cast("Lists", headers)
    structs = cast("pa.StructArray", lists.flatten())
    starts = offsets_array(lists.value_lengths().to_numpy())
    return HeaderParts(starts, structs.field("key").cast(pa.binary()), structs.field("value"))


def _together(offset_range: OffsetRange, answers: Sequence[TaskResult]) -> TaskResult:
    """Joins the results of the tasks of one planned range; raises LoadFailedError where two have the same offsets."""
    files = sorted((file for answer in answers for file in answer.files), key=lambda file: file.min_offset)
    for before, after in pairwise(files):
        if after.min_offset <= before.max_offset:
            raise LoadFailedError(f"partition {offset_range.partition}: {before.name} and {after.name} overlap")
    records = sum(answer.records for answer in answers)
    recorded = merged(unpacked(answer.recorded, answer.range.from_offset) for answer in answers)
    return TaskResult(
        range=offset_range,
        records=records,
        absent=offset_range.offsets - records,
        is_proven=False,
        recorded="" if records == offset_range.offsets else packed(recorded, offset_range.from_offset),
        dead_letters=sum(answer.dead_letters for answer in answers),
        value_bytes=sum(answer.value_bytes for answer in answers),
        files=tuple(files),
        dead_letter_files=tuple(file for answer in answers for file in answer.dead_letter_files),
        traces=tuple(trace for answer in answers for trace in answer.traces),
    )
