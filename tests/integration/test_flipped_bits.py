"""One flipped bit in a closed segment, met by every reader: each gives the right records or an error, never others.

A batch's CRC covers neither its base offset nor its length, so a flip there leaves bytes that are valid by themselves.
Readers that accept the loss of offsets go on, and lack the batch, at most with those behind it in its segment, which
the broker can't find; where a base offset is flipped, it may stay open which batch has the wrong one.
"""

import random
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.client.log_check import check_topics
from millrace.errors import MillraceError
from millrace.fs import OsFileSystem
from millrace.records.batch import HEADER_BYTES, walk
from millrace.records.compression import Codec
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.cli.app import app
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.spark.source import MillraceDataSource
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_support.broker_properties import KEEPS_ALL, NO_SCRUBBER
from millrace_support.command_runner import CommandRunner

pytestmark = pytest.mark.broker_errors(r"segments\.damage_search: ")

TOPIC = "events"
BATCHES, RECORDS = 200, 10
SETTINGS = {"log.segment.bytes": "4000", "log.index.interval.bytes": "500", **KEEPS_ALL, **NO_SCRUBBER}
OFFSET_BYTES = range(8)
EXPECTED = [(offset, b"%d:" % offset + b"v" * (offset % 40)) for offset in range(BATCHES * RECORDS)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker that has stopped and started since it wrote the topic, so that all of it was synced."""
    with BrokerProcess(tmp_path_factory.mktemp("flips") / "data", properties=SETTINGS) as process:
        with Cluster(process.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, 1)
            for batch in range(BATCHES):
                records = [NewRecord(value) for _, value in EXPECTED[batch * RECORDS : (batch + 1) * RECORDS]]
                SyncProducer(cluster).send(TOPIC, 0, records, codec=Codec(batch % 5))
        process.restart()
        yield process


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("flips", local_master(2)) as session:
        session.dataSource.register(MillraceDataSource)
        yield session


def closed_segments(broker):
    return sorted(Path(broker.data_dir, f"{TOPIC}-0").glob("*.log"))[:-1]


@contextmanager
def flipped(segment, chance):
    """Flips a bit of a batch of the segment, of its header in two of three cases, and says where.

    Gives the byte in the batch, too, and the offsets from the batch's on to the end of the segment.
    """
    content = segment.read_bytes()
    batches = list(walk(content))
    position, header = chance.choice(batches)
    in_header = chance.random() < 2 / 3
    at = position + chance.randrange(*((0, HEADER_BYTES) if in_header else (HEADER_BYTES, header.size_bytes)))
    bit = chance.randrange(8)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes([content[at] ^ 1 << bit]))
    try:
        place = f"{segment.name}, batch {header.base_offset}, byte {at - position}, bit {bit}"
        yield place, at - position, range(header.base_offset, batches[-1][1].next_offset)
    finally:
        segment.write_bytes(content)


def outcome(read):
    """Returns the records that a reader gives, or None where it ends with an error."""
    try:
        return read()
    except (MillraceError, PySparkException):
        return None


def by_client(broker):
    with SimpleConsumer(broker.bootstrap) as consumer:
        return [(record.offset, record.value) for record in consumer.messages(TOPIC, 0)]


def by_accepting_client(broker):
    with SimpleConsumer(broker.bootstrap, accept_missing_offsets=True) as consumer:
        return [(record.offset, record.value) for record in consumer.messages(TOPIC, 0)]


def by_accepting_load(broker, spark, table):
    options = LoadOptions(topic=TOPIC, table=str(table), bootstrap=broker.bootstrap, accept_lost_offsets=True)
    load_topic(options, spark=spark)
    return rows_of(table)


def by_command(broker):
    result = CommandRunner().invoke(app, ["consume", TOPIC, "--bootstrap", broker.bootstrap, "--format", "%o %s\\n"])
    if result.exit_code:
        return None
    lines = [line.split(" ", 1) for line in result.stdout.splitlines()]
    return [(int(offset), value.encode()) for offset, value in lines]


def by_source(broker, spark):
    options = {"bootstrap": broker.bootstrap, "topic": TOPIC}
    rows = spark.read.format("millrace").options(**options).load().select("offset", "value").collect()
    return sorted((row.offset, bytes(row.value)) for row in rows)


def by_load(broker, spark, table):
    load_topic(LoadOptions(topic=TOPIC, table=str(table), bootstrap=broker.bootstrap), spark=spark)
    return rows_of(table)


def rows_of(table):
    rows = ds.dataset(Table.load(str(table), OsFileSystem()).files(), format="parquet").to_table(["offset", "value"])
    return sorted(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))


def by_verify(broker):
    with Cluster(broker.bootstrap) as cluster:
        [report] = check_topics(cluster, [TOPIC])
    return None if report.findings else EXPECTED


def test_every_reader_reads_the_whole_log(broker, spark, tmp_path):
    assert by_client(broker) == by_command(broker) == by_verify(broker) == EXPECTED
    assert by_source(broker, spark) == by_load(broker, spark, tmp_path / "table") == EXPECTED


@pytest.mark.timeout(7200)
@pytest.mark.soak(rounds=60, soak_rounds=1000)
def test_a_flipped_bit_gives_the_right_records_or_an_error(broker, spark, tmp_path, rounds, record_property):
    refused = {}
    for seed in rounds:
        chance = random.Random(seed)
        with flipped(chance.choice(closed_segments(broker)), chance) as (place, byte, behind):
            outcomes = {
                "client": outcome(lambda: by_client(broker)),
                "consume": outcome(lambda: by_command(broker)),
                "source": outcome(lambda: by_source(broker, spark)),
                "load": outcome(lambda seed=seed: by_load(broker, spark, tmp_path / str(seed))),
                "verify": outcome(lambda: by_verify(broker)),
            }
            accepting = {
                "client": outcome(lambda: by_accepting_client(broker)),
                "load": outcome(lambda seed=seed: by_accepting_load(broker, spark, tmp_path / f"{seed}-accepting")),
            }
        for reader, found in outcomes.items():
            assert found in (None, EXPECTED), f"seed {seed}, {place}: {reader} gives {len(found)} records"
            refused[reader] = refused.get(reader, 0) + (found is None)
        complete = {reader for reader, found in outcomes.items() if found is not None} - {"verify"}
        assert outcomes["verify"] is None or len(complete) == 4, f"seed {seed}, {place}: only {complete} read it"
        for reader, found in accepting.items():
            assert found is not None or byte in OFFSET_BYTES, f"seed {seed}, {place}: an accepting {reader} stops"
            lost = [record for record in EXPECTED if found is not None and record not in found]
            assert found is None or set(found) <= set(EXPECTED), f"seed {seed}, {place}: an accepting {reader} errs"
            assert {offset for offset, _ in lost} <= set(behind), f"seed {seed}, {place}: an accepting {reader} errs"
    for reader, count in refused.items():
        record_property(f"refused by {reader}", count)
    assert refused["verify"] > 0


@pytest.mark.parametrize("bit", [0, 3, 8, 9, 12, 20, 40, 62])
def test_what_is_accepted_as_missing_is_no_record_behind_a_damaged_base_offset(broker, spark, tmp_path, bit):
    """The last batch of a closed segment says a later offset: what is accepted must not be the records behind it."""
    segment = closed_segments(broker)[3]
    content = segment.read_bytes()
    position, header = list(walk(content))[-1]
    with segment.open("r+b") as file:
        file.seek(position)
        file.write((header.base_offset ^ 1 << bit).to_bytes(8, "big", signed=True))
    try:
        found = [outcome(lambda: by_accepting_client(broker))]
        found.append(outcome(lambda: by_accepting_load(broker, spark, tmp_path / "table")))
    finally:
        segment.write_bytes(content)
    damaged = set(range(header.base_offset, header.next_offset))
    for records in found:
        assert records is None or set(EXPECTED) - set(records) <= {EXPECTED[offset] for offset in damaged}
