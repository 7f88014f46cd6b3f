"""`millrace verify` on folders that a broker wrote, whole and damaged, and the repair of the damaged ones."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.client import Cluster, SimpleConsumer, SyncProducer
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess

MILLRACE = str(Path(sys.executable).with_name("millrace"))
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


def verify(*arguments):
    command = [MILLRACE, "verify", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, timeout=120, check=False)
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
    assert f"{segment}: byte {position}: CRC-32C of the batch at offset {header.base_offset} is wrong" in output
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_an_index_that_does_not_fit_is_found_and_made_anew(segment):
    index = segment.with_suffix(".index")
    overwrite(index, 4, b"\x00\x00\x00\x07")
    assert findings(rows(segment, status=1)) == [(str(index), 0)]
    repaired, report = rows(segment, "--repair", status=0)
    assert repaired["repaired"] == {"file": str(segment), "original": "", "dropped_bytes": 0}
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
    assert repaired == {"file": str(segment), "original": f"{segment}.damaged", "dropped_bytes": lost.size_bytes}
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
