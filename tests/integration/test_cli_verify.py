"""`millrace verify` on folders that a broker wrote, whole and damaged, and the repair of the damaged ones.

With `--bootstrap` the same of a running broker, whose files are damaged beneath it.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.client.log_check import check_topics
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess
from millrace_support.await_brokers import await_brokers

pytestmark = pytest.mark.usefixtures("warm_path")
BATCHES = 30
RECORDS_PER_BATCH = 10
SETTINGS = {"log.segment.bytes": "1500", "log.index.interval.bytes": "100"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A data folder after a clean stop, of several segments."""
    data = tmp_path_factory.mktemp("verify") / "data"
    with BrokerProcess(data, properties=SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        for batch in range(BATCHES):
            records = [NewRecord(b"value-%d" % batch, b"k", 1000 * batch + one) for one in range(RECORDS_PER_BATCH)]
            SyncProducer(cluster).send("events", 0, records, codec=Codec(batch % 5))
    return data


@pytest.fixture
def data(written, tmp_path):
    """A copy to be damaged."""
    return Path(shutil.copytree(written, tmp_path / "data"))


@pytest.fixture
def segment(data):
    """The second of at least four segments."""
    segments = sorted((data / "events-0").glob("*.log"))
    assert len(segments) >= 4
    return segments[1]


@pytest.fixture
def broker(data):
    """A broker that serves the copy."""
    with BrokerProcess(data, properties=SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("others", 0, [NewRecord(b"value")])
        yield broker


def verify(*arguments, environment=None):
    command = ["millrace", "verify", *map(str, arguments)]
    settings = {**os.environ, **(environment or {})}
    result = subprocess.run(command, capture_output=True, timeout=120, check=False, env=settings)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


def rows(*arguments, status):
    code, output, error = verify(*arguments, "--json")
    assert (code, error) == (status, "")
    return [json.loads(line) for line in output.splitlines()]


def findings(found):
    return [(one["file"], one["position"]) for row in found for one in row.get("findings", ())]


def batches_of(segment):
    return list(walk(segment.read_bytes()))


def overwrite(file, position, content):
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(content)


def test_a_whole_folder_has_no_findings(data):
    found = rows(data, status=0)
    assert [row["file"] for row in found] == sorted(map(str, data.glob("*/*.log")))
    assert sum(row["batches"] for row in found) == BATCHES
    assert found[-1]["next_offset"] == BATCHES * RECORDS_PER_BATCH
    assert findings(found) == []


def test_damage_is_placed_and_the_files_stay_as_they_are(data, segment):
    position, header = batches_of(segment)[1]
    overwrite(segment, position + 70, b"\xff\xff")
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert findings(rows(data, status=1))[0] == (str(segment), position)
    code, output, _ = verify(segment.parent)
    assert code == 1
    where = f"{header.size_bytes} bytes at position {position}"
    reason = f"CRC-32C of the batch at offset {header.base_offset} is wrong"
    offsets = f"offsets {header.base_offset} to {header.next_offset - 1}"
    assert f"{segment}: byte {position}: {offsets} are damaged, {where}: {reason}" in output
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_an_index_that_does_not_fit_is_found_and_made_anew(segment):
    index = segment.with_suffix(".index")
    overwrite(index, 4, b"\x00\x00\x00\x07")
    assert findings(rows(segment, status=1)) == [(str(index), 0)]
    repaired, report = rows(segment, "--repair", status=0)
    assert repaired["repaired"] == {"file": str(segment), "original": "", "dropped_bytes": 0, "lost": []}
    assert findings([report]) == []
    assert not index.exists()


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_a_repair_keeps_every_other_record_and_the_file_as_it_was(data, segment, clean):
    (position, lost), *_ = batches_of(segment)[1:]
    overwrite(segment, position, bytes(100))
    original = segment.read_bytes()
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    repaired = rows(data, "--repair", status=0)[0]["repaired"]
    gone = {"start_offset": lost.base_offset, "end_offset": lost.next_offset}
    kept = {"original": f"{segment}.damaged", "dropped_bytes": lost.size_bytes}
    assert repaired == {"file": str(segment), **kept, "lost": [gone]}
    assert Path(f"{segment}.damaged").read_bytes() == original
    with BrokerProcess(data, properties=SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        served, offset = [], 0
        consumer = SimpleConsumer(cluster)
        while offset < consumer.latest("events", 0):
            records = [
                one for one in decode_records(consumer.fetch("events", 0, offset).records) if one.offset >= offset
            ]
            served += [one.offset for one in records]
            offset = served[-1] + 1
    gone = range(lost.base_offset, lost.next_offset)
    assert served == [one for one in range(BATCHES * RECORDS_PER_BATCH) if one not in gone]


def test_a_folder_that_a_broker_has_open_is_refused(data):
    with BrokerProcess(data):
        for arguments in ((data,), (data / "events-0", "--repair")):
            code, output, error = verify(*arguments)
            assert (code, output) == (1, "")
            assert error == f"millrace: {data}: a broker has this folder open (.lock); stop it first\n"


@pytest.mark.parametrize("name", ["nothing-here", "00000000000000000000.index", "notes.txt"])
def test_what_is_no_log_is_refused(tmp_path, name):
    code, _, error = verify(tmp_path / name)
    assert code == 1
    assert error.startswith(f"millrace: {tmp_path / name}: ")


def test_an_empty_folder_is_refused(tmp_path):
    assert verify(tmp_path)[0::2] == (
        1,
        f"millrace: {tmp_path}: neither a data folder, nor a partition's, nor a segment's file\n",
    )


def test_a_running_broker_is_whole(broker):
    events, others = rows("--bootstrap", broker.bootstrap, status=0)
    assert (events["topic"], events["partition"]) == ("events", 0)
    assert (events["batches"], events["next_offset"]) == (BATCHES, BATCHES * RECORDS_PER_BATCH)
    assert events["size_bytes"] == sum(file.stat().st_size for file in broker.data_dir.glob("events-0/*.log"))
    assert (others["topic"], others["batches"], others["next_offset"]) == ("others", 1, 1)
    assert events["findings"] == others["findings"] == []


def test_internal_topics_are_read_too(broker):
    with Cluster(broker.bootstrap) as cluster:
        SimpleConsumer(cluster).commit_offsets("group", {("events", 0): 7})
    found = rows("--bootstrap", broker.bootstrap, status=0)
    assert sum(row["batches"] for row in found if row["topic"] == "__consumer_offsets") == 1


def test_records_may_be_deleted_up_to_the_midst_of_a_batch(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).delete_records("events", 0, 215)
    [events] = rows("--bootstrap", broker.bootstrap, "events", status=0)
    assert (events["batches"], events["next_offset"]) == (9, BATCHES * RECORDS_PER_BATCH)


@pytest.mark.broker_errors(r"damage_search: \S+: offsets 100 to 109 are damaged")
@pytest.mark.parametrize(("at", "damage"), [(70, b"\xff\xff"), (16, b"\x07")], ids=["record", "header"])
def test_damage_beneath_a_running_broker_is_a_finding_and_the_other_topics_are_read(broker, segment, at, damage):
    """The broker checks what it sends, and answers with an error instead of damage."""
    position, header = batches_of(segment)[1]
    overwrite(segment, position + at, damage)
    events, others = rows("--bootstrap", broker.bootstrap, status=1)
    [finding] = events["findings"]
    assert finding["offset"] == header.base_offset == 100
    assert finding["reason"].endswith("(CORRUPT_MESSAGE); the partition is not checked from here on")
    assert others["findings"] == []
    code, output, error = verify("--bootstrap", broker.bootstrap)
    assert (code, error) == (1, "")
    header_line, events_line, others_line, line = output.splitlines()
    assert header_line.split("  ")[0] == "topic"
    assert [line.split()[0] for line in (events_line, others_line)] == ["events", "others"]
    assert line == f"events-0: offset 100: {finding['reason']}"


def test_records_that_are_deleted_meanwhile_are_not_missed(broker, monkeypatch):
    latest = SimpleConsumer.latest

    def latest_after_deletion(consumer, topic, partition):
        Admin(cluster).delete_records(topic, partition, 215)
        return latest(consumer, topic, partition)

    monkeypatch.setattr(SimpleConsumer, "latest", latest_after_deletion)
    with Cluster(broker.bootstrap) as cluster:
        [events] = check_topics(cluster, ["events"])
    assert (events.batches, events.next_offset, events.findings) == (9, BATCHES * RECORDS_PER_BATCH, ())


def test_a_partition_without_a_leader_is_a_finding_and_the_others_are_read(tmp_path, zookeeper):
    chroot = f"{zookeeper.address}/{uuid4().hex}"
    with (
        BrokerProcess(tmp_path / "1", zookeeper=chroot, broker_id=1) as first,
        BrokerProcess(tmp_path / "2", zookeeper=chroot, broker_id=2) as second,
        Cluster(f"{first.bootstrap},{second.bootstrap}") as cluster,
    ):
        await_brokers({1, 2}, first, second)
        Admin(cluster).create_topic("spread", 2)
        for partition in (0, 1):
            SyncProducer(cluster).send("spread", partition, [NewRecord(b"value")])
        leaders = {one: cluster.metadata(["spread"]).topic("spread").partitions[one].leader for one in (0, 1)}
        second.stop()
        await_brokers({1}, first)
        found = {row["partition"]: row for row in rows("--bootstrap", first.bootstrap, "spread", status=1)}
    [lost], [kept] = [[one for one in leaders if leaders[one] == broker] for broker in (2, 1)]
    [finding] = found[lost]["findings"]
    assert "has no leader at present" in finding["reason"]
    assert (found[kept]["batches"], found[kept]["findings"]) == (1, [])


def test_a_topic_that_does_not_exist_is_refused(broker):
    refused = (1, "", "millrace: topic nothing does not exist\n")
    assert verify("--bootstrap", broker.bootstrap, "events", "nothing") == refused


def test_a_broker_is_asked_only_where_it_is_typed(data):
    assert verify(data, environment={"MILLRACE_BOOTSTRAP": "127.0.0.1:1"})[0::2] == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "DIR_OR_FILE: name files or folders, or give --bootstrap"),
        (("--bootstrap", "127.0.0.1:1", "--repair"), "--repair: not together with --bootstrap"),
    ],
)
def test_what_makes_no_sense_together_is_a_usage_error(arguments, said):
    code, output, error = verify(*arguments)
    assert (code, output) == (2, "")
    assert said in error
