"""`millrace import-legacy` as a user runs it, against a broker."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster, Groups, SimpleConsumer, SyncProducer
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess
from millrace.zk.paths import consumer_offsets
from millrace_support.legacy_messages import encode_messages
from millrace_support.waiting import until
from millrace_support.zookeeper_sessions import started

pytestmark = pytest.mark.usefixtures("warm_path")
MILLRACE = str(Path(sys.executable).with_name("millrace"))  # a process of its own, which can be killed
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
def import_legacy(broker, tmp_path):
    def command(*arguments):
        return subprocess.run(
            ["millrace", "import-legacy", *map(str, arguments), "--bootstrap", broker.bootstrap],
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            text=True,
            cwd=tmp_path,
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


PAYLOADS = [b"%06d" % number + bytes(1000) for number in range(6000)]  # six batches of a megabyte


@pytest.fixture
def old(tmp_path, topic):
    """A log of three files, the last of which has compressed messages; its positions by message, and its folder."""
    files = [
        encode_messages(PAYLOADS[:2000], magic=0),
        encode_messages(PAYLOADS[2000:4000]),
        b"".join(encode_messages(PAYLOADS[first : first + 50], codec=Codec.GZIP) for first in range(4000, 6000, 50)),
    ]
    write_partition(tmp_path / f"{topic}_0", *files)
    return tmp_path


def test_an_import_goes_on_from_each_batch_after_which_it_was_stopped(old, cluster, topic, import_legacy):
    """The map is cut as a kill leaves it: at a batch that was sent, and at one that was noted and not sent."""
    assert import_legacy(old, topic).returncode == 0
    lines = (old / f"{topic}.offsets.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) > 5
    for count in range(1, len(lines) + 1):
        for is_sent in (True, False) if count > 1 else (True,):
            name = f"{topic}-{count}-{is_sent}"
            Admin(cluster).create_topic(name, 1)
            batches = [json.loads(line) for line in lines[1:count]]
            for batch in batches if is_sent else batches[:-1]:
                records = PAYLOADS[batch["offset"] : batch["offset"] + batch["records"]]
                SyncProducer(cluster).send(name, 0, [NewRecord(one) for one in records])
            head = json.loads(lines[0])
            topic_id = str(cluster.metadata([name]).topic(name).topic_id)
            head = json.dumps(head | {"topic": name, "topic_id": topic_id}).encode() + b"\n"
            torn = b"" if is_sent else b'{"partition": 0, "posi'
            (old / "cut.jsonl").write_bytes(b"".join((head, *lines[1:count], torn)))
            result = import_legacy(old, name, "--source-topic", topic, "--map", "cut.jsonl")
            assert (result.returncode, result.stderr) == (0, "")
            assert values(cluster, name, 0) == PAYLOADS
            told = [json.loads(line)["offset"] for line in (old / "cut.jsonl").read_bytes().splitlines()[1:]]
            assert sorted(set(told)) == sorted(json.loads(line)["offset"] for line in lines[1:])


def test_an_import_that_is_killed_goes_on_without_doubling(old, broker, cluster, topic, import_legacy):
    command = [MILLRACE, "import-legacy", str(old), topic, "--bootstrap", broker.bootstrap]
    noted = old / f"{topic}.offsets.jsonl"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=old) as process:
        until(lambda: noted.exists() and noted.read_bytes().count(b"\n") > 1)
        process.kill()
    result = import_legacy(old, topic)
    assert (result.returncode, result.stderr) == (0, "")
    assert values(cluster, topic, 0) == PAYLOADS
    again = import_legacy(old, topic)
    assert again.stdout.startswith("0 message(s)")
    assert values(cluster, topic, 0) == PAYLOADS


def test_an_import_does_not_go_on_where_others_have_written(old, cluster, topic, import_legacy):
    assert import_legacy(old, topic).returncode == 0
    SyncProducer(cluster).send(topic, 0, [NewRecord(b"other")])
    result = import_legacy(old, topic)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert f"{topic}-0 ends at offset 6001, not at" in result.stderr
    assert "others write to the topic" in result.stderr


def test_the_map_of_another_import_is_left_alone(old, cluster, topic, import_legacy):
    assert import_legacy(old, topic).returncode == 0
    Admin(cluster).delete_topic(topic)
    result = import_legacy(old, topic)
    assert result.returncode == 1
    assert f"{topic}.offsets.jsonl is the map of an import of {old} into topic {topic} with the id" in result.stderr
    (old / "notes.txt").write_text("mine\n")
    assert "notes.txt is not the map of an import" in import_legacy(old, topic, "--map", "notes.txt").stderr
    assert (old / "notes.txt").read_text() == "mine\n"


@pytest.fixture
def old_group(zookeeper, topic):
    """Writes the offsets of a 0.7 group as its consumers wrote them; returns the address of the ZooKeeper."""

    def write(positions):
        address = f"{zookeeper.address}/{topic}"
        with started(address) as session:
            for name, position in positions.items():
                session.ensure(consumer_offsets("report", topic))
                session.put(f"{consumer_offsets('report', topic)}/{name}", b"%d" % position)
        return address

    return write


def test_a_groups_offsets_come_along(old, broker, topic, import_legacy, old_group):
    assert import_legacy(old, topic).returncode == 0
    size = len(encode_messages(PAYLOADS[:1], magic=0))
    command = ["millrace", "offsets", "from-legacy", "report", "--map", f"{topic}.offsets.jsonl"]
    command += ["--legacy-zookeeper", old_group({"3-0": 1500 * size, "3-7": 5})]
    command += ["--bootstrap", broker.bootstrap, "--json"]
    with Cluster(broker.bootstrap) as cluster:
        shown = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False, cwd=old)
        assert shown.returncode == 0
        assert shown.stderr == (
            b"partition 7 was not imported: its position 5 is left out\n"
            b"nothing is changed yet: --execute sets these offsets\n"
        )
        row = {"topic": topic, "partition": 0, "position": 1500 * size, "now": None, "new": 1500}
        assert json.loads(shown.stdout)["partitions"] == [row]
        assert Groups(cluster).offsets("report") == {}
        done = subprocess.run([*command, "--execute"], capture_output=True, timeout=TIMEOUT_S, check=False, cwd=old)
        assert (done.returncode, done.stderr.count(b"\n")) == (0, 1)
        assert {one: found.offset for one, found in Groups(cluster).offsets("report").items()} == {(topic, 0): 1500}
        Groups(cluster).delete("report")


def test_offsets_in_the_logs_of_several_brokers_need_a_choice(old, broker, topic, import_legacy, old_group):
    assert import_legacy(old, topic).returncode == 0
    command = ["millrace", "offsets", "from-legacy", "report", "--map", f"{topic}.offsets.jsonl", "--json"]
    command += ["--legacy-zookeeper", old_group({"1-0": 0, "2-0": 10**9}), "--bootstrap", broker.bootstrap]

    def run(*more):
        return subprocess.run([*command, *more], capture_output=True, timeout=TIMEOUT_S, check=False, cwd=old)

    assert b"name one by --legacy-broker" in run().stderr
    assert json.loads(run("--legacy-broker", "1").stdout)["partitions"][0]["new"] == 0
