"""A running broker's scrubber finds every kind of damage in its files, though nobody reads them, and says where."""

import json
import urllib.request
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.batch import HEADER_BYTES, walk
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.admin_requests import read_request
from millrace_support.broker_properties import EAGER_SCRUBBER, KEEPS_ALL
from millrace_support.waiting import until

pytestmark = pytest.mark.broker_errors(r"segments\.damage_search: ", r"recovery\.loading: ")

SETTINGS = {"log.segment.bytes": "3000", "log.index.interval.bytes": "400", **EAGER_SCRUBBER, **KEEPS_ALL}
BATCHES, RECORDS = 40, 5
BYTES = {"offset": 7, "length": 11, "magic": 16, "CRC": 18, "attributes": 22, "record": HEADER_BYTES + 30}
CUTS = {"cut inside a batch": 40, "emptied": 0}
MENDED = ["deleted", "replaced", "index flipped", "index deleted", "time index cut"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker that has stopped and started since it wrote the topics, one for each kind of damage."""
    with BrokerProcess(tmp_path_factory.mktemp("scrubbed") / "data", properties=SETTINGS) as process:
        with Cluster(process.bootstrap) as cluster:
            producer = SyncProducer(cluster)
            for topic in map(topic_of, [*BYTES, *CUTS, *MENDED]):
                Admin(cluster).create_topic(topic, 1)
                for batch in range(BATCHES):
                    producer.send(topic, 0, [NewRecord(b"%050d" % (batch * RECORDS + one)) for one in range(RECORDS)])
        process.restart()
        yield process


def topic_of(kind):
    return kind.replace(" ", "-")


def segment_of(broker, kind):
    return sorted(Path(broker.data_dir, f"{topic_of(kind)}-0").glob("*.log"))[2]


def scrubbed(broker):
    with urllib.request.urlopen(read_request(broker, "maintenance/scrub")) as answer:
        [directory] = json.load(answer)["directories"]
    return directory


def metric(broker, name):
    with urllib.request.urlopen(read_request(broker, "metrics")) as answer:
        lines = answer.read().decode().splitlines()
    [value] = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name}{{")]
    return float(value)


def named(broker, segment):
    """Returns the damage of a segment that health names, once there is some."""

    def look():
        with urllib.request.urlopen(read_request(broker, "healthz")) as answer:
            return [one for one in json.load(answer)["checks"]["damage"] if one.startswith(f"{segment}: ")]

    return until(look)


def assert_named(broker, segment, start, end, position):
    [told] = named(broker, segment)
    assert told.startswith(f"{segment}: offsets {start} to {end - 1} are damaged")
    assert f"at position {position}: " in told
    assert told in broker.read_log()
    assert told in scrubbed(broker)["damage"]
    assert metric(broker, "millrace_log_directory_damaged_ranges") >= 1
    assert metric(broker, "millrace_log_scrub_findings_total") >= 1


@pytest.mark.parametrize("kind", BYTES)
def test_a_flipped_bit_is_found_and_named(broker, kind):
    segment = segment_of(broker, kind)
    content = bytearray(segment.read_bytes())
    position, header = list(walk(bytes(content)))[3]
    content[position + BYTES[kind]] ^= 4
    segment.write_bytes(content)
    assert_named(broker, segment, header.base_offset, header.next_offset, position)


@pytest.mark.parametrize("kind", CUTS)
def test_a_file_that_is_cut_short_lacks_its_end(broker, kind):
    segment = segment_of(broker, kind)
    content = segment.read_bytes()
    batches = list(walk(content))
    position, header = batches[3 if CUTS[kind] else 0]
    segment.write_bytes(content[: position + CUTS[kind]])
    assert_named(broker, segment, header.base_offset, batches[-1][1].next_offset, position)


def delete(path):
    path.unlink()


def replace(path):
    path.unlink()
    path.write_bytes(b"nonsense")


HARM = {
    "deleted": (".log", delete),
    "replaced": (".log", replace),
    "index flipped": (".index", lambda path: path.write_bytes(b"\x00\x01" + path.read_bytes()[2:])),
    "index deleted": (".index", delete),
    "time index cut": (".timeindex", lambda path: path.write_bytes(path.read_bytes()[:-5])),
}


@pytest.mark.parametrize("kind", MENDED)
def test_what_the_broker_still_has_is_written_again(broker, kind):
    suffix, harm = HARM[kind]
    segment = segment_of(broker, kind)
    path = segment.with_suffix(suffix)
    content, batches = path.read_bytes(), segment.read_bytes()
    harm(path)
    until(lambda: path.exists() and path.read_bytes() == content)
    assert segment.read_bytes() == batches
    assert (
        "the segment was written again"
        in until(lambda: [line for line in broker.read_log().splitlines() if str(path) in line])[0]
    )


def test_the_progress_is_told_and_survives_a_restart(broker):
    rounds = scrubbed(broker)["all_rounds"]
    done = until(lambda: scrubbed(broker), lambda found: found["all_rounds"] > rounds)
    assert done["last_started_ms"] <= done["last_ended_ms"]
    assert done["total_bytes"] > 0
    assert metric(broker, "millrace_log_scrub_bytes_total") > 0
    broker.restart()
    assert scrubbed(broker)["last_ended_ms"] >= done["last_ended_ms"]
