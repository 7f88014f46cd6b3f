"""`millrace import-legacy` as a user runs it, against a broker."""

import json
import re
import subprocess

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess
from millrace_support.legacy_messages import encode_messages

pytestmark = pytest.mark.usefixtures("warm_path")
TIMEOUT_S = 120
SUM = "{messages} message(s) from {files} file(s) of {partitions} partition(s) acknowledged by {topic}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all tests here; each has a topic of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(request):
    return re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)


@pytest.fixture
def import_legacy(broker):
    def command(*arguments):
        return subprocess.run(
            ["millrace", "import-legacy", *map(str, arguments), "--bootstrap", broker.bootstrap],
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            text=True,
        )

    return command


def write_partition(directory, *files):
    """Files as a 0.7 broker names them, each from its messages' bytes."""
    directory.mkdir()
    position = 0
    for content in files:
        (directory / f"{position:011}.kafka").write_bytes(content)
        position += len(content)


def values(cluster, topic, partition):
    found, offset = [], 0
    while records := list(decode_records(SimpleConsumer(cluster).fetch(topic, partition, offset).records)):
        assert [record.offset for record in records] == [*range(offset, offset + len(records))]
        assert all(record.key is None and record.timestamp_ms > 0 for record in records)
        found += [record.value for record in records]
        offset = records[-1].offset + 1
    return found


def test_order_and_partitions_are_kept(tmp_path, cluster, topic, import_legacy):
    payloads = [b"%05d" % number + bytes(500) for number in range(5000)]
    files = [
        encode_messages(payloads[:1000], magic=0),
        encode_messages(payloads[1000:3000]),
        encode_messages(payloads[3000:4000], codec=Codec.GZIP) + encode_messages(payloads[4000:], codec=Codec.SNAPPY),
    ]
    write_partition(tmp_path / f"{topic}_0", *files)
    write_partition(tmp_path / f"{topic}_2", encode_messages([b"", b"two"]))
    result = import_legacy(tmp_path, topic, "--codec", "lz4")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == SUM.format(messages=5002, files=4, partitions=2, topic=topic) + "\n"
    assert values(cluster, topic, 0) == payloads
    assert values(cluster, topic, 1) == []
    assert values(cluster, topic, 2) == [b"", b"two"]


def test_one_partitions_directory_into_a_topic_that_is_there(tmp_path, cluster, topic, import_legacy):
    Admin(cluster).create_topic(topic, 2)
    SyncProducer(cluster).send(topic, 1, [NewRecord(b"before")])
    write_partition(tmp_path / "old_1", encode_messages([b"after"]))
    result = import_legacy(tmp_path / "old_1", topic, "--json")
    assert json.loads(result.stdout) == {
        "topic": topic,
        "partitions": 1,
        "files": 1,
        "messages": 1,
        "damaged": 0,
        "damaged_bytes": 0,
    }
    assert values(cluster, topic, 1) == [b"before", b"after"]


@pytest.fixture
def damaged(tmp_path):
    """Two partitions, the first with a wrong CRC in its second message: that file, and the position of the message."""
    content = bytearray(encode_messages([b"one", b"two", b"six"]))
    size = len(content) // 3
    content[size + 6] ^= 1
    write_partition(tmp_path / "old_0", bytes(content))
    write_partition(tmp_path / "old_1", encode_messages([b"next"]))
    return tmp_path / "old_0" / "00000000000.kafka", size


def test_damage_stops_the_import_and_says_where(tmp_path, cluster, topic, import_legacy, damaged):
    file, position = damaged
    result = import_legacy(tmp_path, topic, "--source-topic", "old")
    assert result.returncode == 1
    assert result.stderr.startswith(f"millrace: {file}: position {position}: CRC-32 is ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == SUM.format(messages=1, files=1, partitions=1, topic=topic) + "\n"
    assert [values(cluster, topic, partition) for partition in (0, 1)] == [[b"one"], []]


def test_damage_is_counted_where_it_is_to_be_skipped(tmp_path, cluster, topic, import_legacy, damaged):
    file, position = damaged
    result = import_legacy(tmp_path, topic, "--source-topic", "old", "--skip-corrupt")
    assert result.returncode == 0
    assert result.stderr.startswith(f"{file}: position {position}: CRC-32 is ")
    assert result.stderr.endswith(f"; {position} bytes skipped\n")
    sum_line = SUM.format(messages=3, files=2, partitions=2, topic=topic)
    assert result.stdout == f"{sum_line}; 1 damaged place(s), {position} bytes, skipped\n"
    assert [values(cluster, topic, partition) for partition in (0, 1)] == [[b"one", b"six"], [b"next"]]


def test_what_can_not_be_done_is_one_line(tmp_path, cluster, topic, import_legacy):
    assert f"millrace: {tmp_path}: no directory {topic}_N" in import_legacy(tmp_path, topic).stderr
    assert "No such file" in import_legacy(tmp_path / "nowhere", topic).stderr
    write_partition(tmp_path / f"{topic}_4", encode_messages([b"x"]))
    Admin(cluster).create_topic(topic, 2)
    result = import_legacy(tmp_path, topic)
    assert result.returncode == 1
    assert result.stderr == f"millrace: topic {topic} has 2 partition(s), 5 are needed\n"
