"""Batches that can't be read: every reader stops and names the option, and with it goes on behind them.

The index of the log has an entry for nearly every batch, so that the broker finds what lies behind a damaged header.
"""

import random
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from millrace import read_topic
from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.client.configs import Configs, ResourceKind
from millrace.client.consumer import ConsumerConnector
from millrace.errors import RecordError, WarehouseError
from millrace.fs import OsFileSystem
from millrace.records.batch import HEADER, HEADER_BYTES, compute_crc, walk
from millrace.records.record import NewRecord, Record, encode_records
from millrace.testing.broker import BrokerProcess
from millrace_ops.cli.app import app
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.downstream.consume import is_without_records
from millrace_pipelines.spark.brokers import TopicSource, brokers_of
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.spark.errors import OffsetsLostError
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.spark.source.options import parse_options
from millrace_pipelines.spark.source.rows import TopicRange, read_offsets
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.dead_letters import dead_letters_of
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import skipped_location
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.replay import ReplayOptions, replay
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.command_runner import CommandRunner
from millrace_support.connector_streams import BOUNDS, read, stream_of

pytestmark = pytest.mark.broker_errors(r"segments\.damage_search: ")

TOPIC = "events"
BATCHES, RECORDS, SEGMENT = 24, 10, 6
VALUE_BYTES = 30
SETTINGS = {"log.segment.bytes": "2700", "log.index.interval.bytes": "1", "log.retention.ms": "-1",
            "log.cleaner.enable": "false"}  # fmt: skip
COUNT = BATCHES * RECORDS
EXPECTED = [(offset, b"%030d" % offset) for offset in range(COUNT)]
PLACES = {"first": 0, "second": 1, "last": SEGMENT - 1}


@pytest.fixture(scope="module")
def broker(zookeeper, tmp_path_factory):
    """A broker that has stopped and started since it wrote the topic, so that all of it was synced."""
    folder, connect = tmp_path_factory.mktemp("damaged") / "data", f"{zookeeper.address}/damaged"
    with BrokerProcess(folder, zookeeper=connect, properties=SETTINGS) as process:
        with Cluster(process.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, 1)
            for batch in range(BATCHES):
                records = [NewRecord(value) for _, value in EXPECTED[batch * RECORDS : (batch + 1) * RECORDS]]
                SyncProducer(cluster).send(TOPIC, 0, records)
        process.restart()
        yield process


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("damaged", local_master(2)) as session:
        yield session


def middle_segment(broker):
    return sorted(Path(broker.data_dir, f"{TOPIC}-0").glob("*.log"))[1]


@contextmanager
def damaged(broker, *batches, change):
    """Changes some batches of the middle segment for a while; gives their offsets, all in a row."""
    segment = middle_segment(broker)
    content = segment.read_bytes()
    assert len(list(walk(content))) == SEGMENT
    places = [list(walk(content))[batch] for batch in batches]
    with segment.open("r+b") as file:
        for position, header in places:
            file.seek(position)
            file.write(change(header, content[position : position + header.size_bytes]))
    try:
        yield range(places[0][1].base_offset, places[-1][1].next_offset)
    finally:
        segment.write_bytes(content)


def flip(at, bit=1):
    def change(_, batch):
        changed = bytearray(batch)
        changed[at] ^= 1 << bit
        return bytes(changed)

    return change


def lie(header, _):
    """Returns a batch with a right CRC, whose records have offsets that do not rise."""
    records = [Record(header.base_offset, 1000, None, value) for _, value in EXPECTED[:RECORDS]]
    return encode_records(header, records)


def name_no_codec(header, batch):
    changed = bytearray(HEADER.pack(*header._replace(attributes=7)) + batch[HEADER_BYTES:])
    changed[17:21] = compute_crc(changed, 0, len(changed)).to_bytes(4, "big")
    return bytes(changed)


def lose(_, batch):
    return bytes(len(batch))


KINDS = {
    "base offset far": flip(2), "base offset": flip(6, 4), "length far": flip(8), "length": flip(11), "magic": flip(16),
    "crc": flip(17), "codec": flip(22), "last offset": flip(26), "count": flip(60), "body": flip(HEADER_BYTES + 9),
    "lying": lie, "no codec": name_no_codec, "zeros": lose,
}  # fmt: skip


def without(offsets):
    return [record for record in EXPECTED if record[0] not in offsets]


def by_client(broker, **options):
    with SimpleConsumer(broker.bootstrap, **options) as consumer:
        return [(record.offset, record.value) for record in consumer.messages(TOPIC, 0)]


def by_arrow(broker, **options):
    rows = read_topic(TOPIC, broker.bootstrap, **options).arrow().to_pylist()
    return [(row["offset"], row["value"]) for row in rows]


def by_client_or_doubt(broker):
    """Returns None where a flipped bit leaves it open which of two batches lies, and the reader says so."""
    try:
        return by_client(broker, accept_missing_offsets=True)
    except RecordError as error:
        if "may be wrong" not in str(error):
            raise
        return None


def by_command(broker, *options):
    arguments = ["consume", TOPIC, "--bootstrap", broker.bootstrap, "--format", "%o %s\\n", *options]
    return CommandRunner().invoke(app, arguments)


def by_source(broker, from_offset=0, until_offset=COUNT, **options):
    given = parse_options({"bootstrap": broker.bootstrap, "topic": TOPIC, **options})
    blocks = read_offsets(TopicRange(TOPIC, 0, from_offset, until_offset), given, ENVELOPE_SCHEMA)
    return [(row["offset"], row["value"]) for block in blocks for row in block.to_pylist()]


def load_options(broker, table, **options):
    return LoadOptions(topic=TOPIC, table=str(table), bootstrap=broker.bootstrap, **options)


def rows_of(location):
    files = Table.load(str(location), OsFileSystem()).files()
    rows = ds.dataset(files, format="parquet").to_table(["offset", "value"]).to_pylist() if files else []
    return sorted((row["offset"], row["value"]) for row in rows)


def letters(table):
    found = dead_letters_of(Table.load(dead_letters_dir(str(table)), OsFileSystem()))
    return [letter for part in found for letter in part.to_pylist()]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_clients_stop_and_go_on_where_it_is_accepted(broker, kind, place):
    with damaged(broker, PLACES[place], change=KINDS[kind]) as lost:
        with pytest.raises(RecordError, match="option to accept missing offsets"):
            by_client(broker)
        assert by_client(broker, accept_missing_offsets=True) == without(lost)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_arrow_stops_and_goes_on_where_it_is_accepted(broker, kind, place):
    with damaged(broker, PLACES[place], change=KINDS[kind]) as lost:
        with pytest.raises(RecordError, match="option to accept missing offsets"):
            by_arrow(broker)
        assert by_arrow(broker, accept_missing_offsets=True) == without(lost)


@pytest.mark.parametrize("kind", KINDS)
def test_two_in_a_row_are_passed_over(broker, kind):
    with damaged(broker, 2, 3, change=KINDS[kind]) as lost:
        assert by_client(broker, accept_missing_offsets=True) == without(lost)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_spark_source_stops_and_goes_on_where_it_is_accepted(broker, kind, place):
    with damaged(broker, PLACES[place], change=KINDS[kind]) as lost:
        with pytest.raises(OffsetsLostError, match="failOnDataLoss=false goes on"):
            by_source(broker)
        assert by_source(broker, failOnDataLoss="false") == without(lost)


@pytest.mark.parametrize("kind", KINDS)
def test_a_span_that_begins_or_ends_in_a_damaged_batch_is_read(broker, kind):
    with damaged(broker, 2, change=KINDS[kind]) as lost:
        middle = lost[RECORDS // 2]
        assert by_source(broker, 0, middle, failOnDataLoss="false") == EXPECTED[: lost[0]]
        assert by_source(broker, middle, 200, failOnDataLoss="false") == EXPECTED[lost[-1] + 1 : 200]


@pytest.mark.parametrize("kind", ["base offset", "length", "body"])
def test_the_command_stops_and_goes_on_where_it_is_accepted(broker, kind):
    with damaged(broker, 2, change=KINDS[kind]) as lost:
        stopped = by_command(broker)
        assert (stopped.exit_code != 0, "accept missing offsets" in str(stopped.exception)) == (True, True)
        accepted = by_command(broker, "--accept-missing-offsets")
    lines = [line.split(" ", 1) for line in accepted.stdout.splitlines()]
    assert [(int(offset), value.encode()) for offset, value in lines] == without(lost)


@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize("kind", ["base offset", "length", "body"])
def test_a_connector_stops_and_goes_on_where_it_is_accepted(broker, zookeeper, kind, accept):
    properties = {
        "group.id": f"{kind}-{accept}".replace(" ", "-"), "zookeeper.connect": f"{zookeeper.address}/damaged",
        "auto.offset.reset": "smallest", "accept.missing.offsets": str(accept).lower(),
    }  # fmt: skip
    with damaged(broker, 2, change=KINDS[kind]) as lost, ConsumerConnector(BOUNDS | properties) as connector:
        stream, count = stream_of(connector, TOPIC), len(without(lost))
        if accept:
            assert [(one.offset, one.value) for one in read(stream, count)] == without(lost)
        else:
            with pytest.raises(RecordError, match="option to accept missing offsets"):
                read(stream, count)


@pytest.mark.parametrize("kind", ["base offset", "length", "magic", "lying", "zeros"])
def test_a_load_stops_and_goes_on_with_a_letter_where_it_is_accepted(broker, spark, tmp_path, kind):
    table = tmp_path / "table"
    with damaged(broker, 2, change=KINDS[kind]) as lost:
        with pytest.raises(WarehouseError, match="--accept-lost-offsets"):
            load_topic(load_options(broker, table), spark=spark)
        assert rows_of(table) == []
        report = load_topic(load_options(broker, table, accept_lost_offsets=True), spark=spark)
        [loaded] = report.ranges
        data = bytes_of(broker, 2)
    assert (loaded.rows, loaded.dead_letters, loaded.missing) == (COUNT - RECORDS, 1, RECORDS - 1)
    assert rows_of(table) == without(lost)
    [letter] = letters(table)
    shown = data if kind in {"lying", "zeros"} else b""  # a broker sends no damage that it has met
    assert (letter["offset"], letter["reason"], letter["value"]) == (lost[0], "damaged", shown)
    assert f"offsets {lost[0]}-{lost[-1]} can't be read" in letter["error"]
    [skipped] = ds.dataset(Table.load(skipped_location(str(table)), OsFileSystem()).files()).to_table().to_pylist()
    found = skipped["from_offset"], skipped["until_offset"], skipped["reason"]
    assert found == (lost[0] + 1, lost[-1] + 1, "damaged")
    assert audit(str(table)) == []


def test_compaction_does_not_explain_what_is_lost_in_a_damaged_batch(broker, spark, tmp_path):
    """The topic has cleanup.policy=compact, and the cleaner is off: the log has each offset that is not damaged."""
    table = tmp_path / "table"
    with compacted(broker), damaged(broker, 2, change=KINDS["length"]) as lost:
        report = load_topic(load_options(broker, table, accept_lost_offsets=True), spark=spark)
    [loaded] = report.ranges
    assert (loaded.dead_letters, loaded.missing, loaded.compacted) == (1, RECORDS - 1, 0)
    assert rows_of(table) == without(lost)
    assert audit(str(table)) == []


@contextmanager
def compacted(broker):
    with Cluster(broker.bootstrap) as cluster:
        configs = Configs(cluster)
        configs.change(ResourceKind.TOPIC, TOPIC, {"cleanup.policy": "compact"})
        yield
        configs.change(ResourceKind.TOPIC, TOPIC, {"cleanup.policy": "delete"})


def bytes_of(broker, number):
    """Returns the bytes of a batch of the middle segment, in which all are of one size."""
    content = middle_segment(broker).read_bytes()
    size_bytes = len(content) // SEGMENT
    return content[number * size_bytes : (number + 1) * size_bytes]


def test_a_replay_leaves_the_letter_and_a_reload_of_the_whole_log_replaces_it(broker, spark, tmp_path):
    table = tmp_path / "table"
    with damaged(broker, 2, change=KINDS["body"]):
        load_topic(load_options(broker, table, accept_lost_offsets=True), spark=spark)
    replayed = replay(ReplayOptions(table=str(table)))
    assert (replayed.selected, replayed.replayed, replayed.staying) == (1, 0, {"damaged": 1})
    assert len(letters(table)) == 1
    reload_topic(load_options(broker, table), Selection(), spark=spark)
    assert (rows_of(table), letters(table)) == (EXPECTED, [])
    assert audit(str(table)) == []


def test_some_bits_are_flipped(broker):
    """What a reader gives with the option is always right, and lacks no more than the damaged batch."""
    chance = random.Random(7)
    for _ in range(40):
        batch, at, bit = chance.randrange(SEGMENT), chance.randrange(HEADER_BYTES), chance.randrange(8)
        with damaged(broker, batch, change=flip(at, bit)) as lost:
            found = by_client_or_doubt(broker)
        assert found in (None, EXPECTED, without(lost)), (batch, at, bit)


def test_a_downstream_job_knows_where_damage_leaves_no_record(broker):
    """It waits for records of its last offsets otherwise, and an output's history never reaches them."""
    body = flip(HEADER_BYTES + 1)
    source = TopicSource(broker.bootstrap, TOPIC, Isolation.READ_UNCOMMITTED)
    with brokers_of(source) as brokers, damaged(broker, 1, 2, change=body) as lost:

        def is_empty(first, end, *, accept=True):
            return is_without_records(brokers, TOPIC, 0, first, end, accept_lost_offsets=accept)

        assert is_empty(lost.start, lost.stop)
        assert is_empty(lost.start + 3, lost.stop - 3)
        assert not is_empty(lost.start, lost.stop + 1)
        assert not is_empty(lost.start - 1, lost.stop)
        with pytest.raises(RecordError):
            is_empty(lost.start, lost.stop, accept=False)
