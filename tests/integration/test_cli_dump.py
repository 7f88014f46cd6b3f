"""`millrace dump` on files that a broker wrote, whole and damaged."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from millrace.client import Cluster, SyncProducer
from millrace.records.batch import HEADER_BYTES, walk
from millrace.records.compression import Codec
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess

pytestmark = pytest.mark.usefixtures("warm_path")
SEGMENT = "00000000000000000000"
BATCHES = 20
RECORDS_PER_BATCH = 10


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A partition's folder after a clean stop."""
    data = tmp_path_factory.mktemp("dump") / "data"
    with (
        BrokerProcess(data, properties={"log.index.interval.bytes": "100"}) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        for batch in range(BATCHES):
            records = [
                NewRecord(b"v%d" % batch, b"k", 1000 * batch + one, (("h", b"1"), ("h", None)))
                for one in range(RECORDS_PER_BATCH)
            ]
            SyncProducer(cluster).send("events", 0, records, codec=Codec(batch % 5))
    return data / "events-0"


@pytest.fixture
def folder(written, tmp_path):
    """A copy to be damaged."""
    return Path(shutil.copytree(written, tmp_path / "events-0"))


@pytest.fixture
def positions(written):
    return [position for position, _ in walk((written / f"{SEGMENT}.log").read_bytes())]


def dump(*arguments):
    result = subprocess.run(["millrace", "dump", *map(str, arguments)], capture_output=True, timeout=120, check=False)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


def rows(*arguments, status=0):
    code, output, error = dump(*arguments, "--json")
    assert (code, error) == (status, "")
    return [json.loads(line) for line in output.splitlines()]


def overwrite(file, position, data):
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


def test_every_batch_of_a_segment(written, positions):
    found = rows(written / f"{SEGMENT}.log")
    assert [row["position"] for row in found] == positions
    assert [(row["base_offset"], row["last_offset"]) for row in found] == [
        (start, start + RECORDS_PER_BATCH - 1) for start in range(0, BATCHES * RECORDS_PER_BATCH, RECORDS_PER_BATCH)
    ]
    assert [row["codec"] for row in found] == ["none", "gzip", "snappy", "lz4", "zstd"] * 4
    assert {row["crc"] for row in found} == {"ok"}
    assert (found[3]["base_timestamp"], found[3]["max_timestamp"]) == (3000, 3009)


def test_every_record_of_a_segment(written):
    records = [row for row in rows(written / f"{SEGMENT}.log", "--records") if "offset" in row]
    assert [row["offset"] for row in records] == list(range(BATCHES * RECORDS_PER_BATCH))
    assert {key: records[35][key] for key in ("timestamp", "key", "value", "headers")} == {
        "timestamp": 3005,
        "key": "k",
        "value": "v3",
        "headers": [["h", "1"], ["h", None]],
    }


def test_index_entries_point_to_batches(written, positions):
    last_offsets = {row["position"]: row["last_offset"] for row in rows(written / f"{SEGMENT}.log")}
    entries = rows(written / f"{SEGMENT}.index")
    assert len(entries) > BATCHES / 2
    assert all(last_offsets[row["log_position"]] == row["offset"] for row in entries)
    times = rows(written / f"{SEGMENT}.timeindex")
    assert times[-1]["max_timestamp"] == 1000 * (BATCHES - 1) + RECORDS_PER_BATCH - 1


def test_text_for_people(written):
    code, output, _ = dump(written / f"{SEGMENT}.log")
    assert code == 0
    first, second, *_ = output.splitlines()
    assert first == str(written / f"{SEGMENT}.log")
    assert "position 0  base_offset 0  last_offset 9" in second
    assert "base_timestamp 1970-01-01T00:00:00.000+00:00" in second


def test_a_wrong_crc_is_placed_and_the_dump_goes_on(folder, positions):
    overwrite(folder / f"{SEGMENT}.log", positions[5] + HEADER_BYTES, b"\x7f")
    found = rows(folder / f"{SEGMENT}.log", status=1)
    assert [row for row in found if "damage" in row] == [
        {
            "file": str(folder / f"{SEGMENT}.log"),
            "position": positions[5],
            "damage": "CRC-32C of the batch at offset 50 is wrong",
        }
    ]
    assert sum("crc" in row for row in found) == BATCHES


def test_a_torn_tail_is_placed(folder, positions):
    file = folder / f"{SEGMENT}.log"
    with file.open("r+b") as opened:
        opened.truncate(positions[-1] + 70)
    last = rows(file, status=1)[-1]
    assert last["position"] == positions[-1]
    assert "70 bytes left" in last["damage"]


def test_nonsense_is_placed(folder, positions):
    overwrite(folder / f"{SEGMENT}.log", positions[7], bytes(100))
    found = rows(folder / f"{SEGMENT}.log", status=1)
    assert len(found) == 8
    assert found[-1]["position"] == positions[7]


def test_an_index_out_of_order_or_cut_is_placed(folder):
    file = folder / f"{SEGMENT}.index"
    overwrite(file, 8, b"\x00\x00\x00\x00")
    with file.open("ab") as opened:
        opened.write(b"xyz")
    size = file.stat().st_size
    damage = {row["position"]: row["damage"] for row in rows(file, status=1) if "damage" in row}
    assert set(damage) == {8, size - 3}
    assert damage[size - 3] == "3 bytes are too few for an entry"


def test_a_file_without_the_right_to_write_is_read_and_stays_as_it_is(folder):
    file = folder / f"{SEGMENT}.index"
    before = file.read_bytes()
    file.chmod(0o444)
    rows(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["notes.txt", "123.log", f"{SEGMENT}.deleted"])
def test_other_files_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    code, _, error = dump(tmp_path / name)
    assert code == 1
    assert error.startswith(f"millrace: {tmp_path / name}: not a file of a log")


def test_a_missing_file_is_named(tmp_path):
    missing = tmp_path / f"{SEGMENT}.log"
    assert dump(missing)[0::2] == (1, f"millrace: {missing}: No such file or directory\n")
    assert not missing.exists()


def test_a_file_that_can_not_be_read_is_named(tmp_path):
    folder = tmp_path / f"{SEGMENT}.log"
    folder.mkdir()
    assert dump(folder)[0::2] == (1, f"millrace: {folder}: Is a directory\n")
