"""Files of a broker's data directory, damaged after kill -9 and after a clean stop, each topic in another way.

No undamaged record that was synced is lost, no other topic is touched, offsets stay, and the damage is named. A start
meets the damage of many topics at once.
"""

import json
import random
import shutil
import urllib.request
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.records.batch import walk
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.cli.app import app
from millrace_support.admin_requests import change_request, read_request
from millrace_support.broker_properties import KEEPS_ALL, NO_SCRUBBER
from millrace_support.command_runner import CommandRunner
from millrace_support.waiting import until

TOPICS = [f"topic-{number}" for number in range(30)]
UNTOUCHED = "untouched"
BATCHES, RECORDS = 40, 5
SETTINGS = {
    "log.segment.bytes": "3000",
    "log.index.interval.bytes": "400",
    "log.flush.interval.messages": "1",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    **KEEPS_ALL,
    **NO_SCRUBBER,
}
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
DATA_DIR_FILES = (*CHECKPOINTS, "log-start-offset-checkpoint")


def value_of(topic, offset):
    return f"{topic} {offset} ".encode() * (offset % 5 + 1)


EXPECTED = {
    topic: {offset: value_of(topic, offset) for offset in range(BATCHES * RECORDS)} for topic in (*TOPICS, UNTOUCHED)
}


def checkpointed(data_dir):
    """Returns whether both checkpoints have the end of every topic."""
    for name in CHECKPOINTS:
        path = data_dir / name
        lines = path.read_text().splitlines() if path.exists() else []
        if not all(f"{topic} 0 {BATCHES * RECORDS}" in lines for topic in EXPECTED):
            return False
    return True


@pytest.fixture(scope="module", params=["kill -9", "clean stop"])
def filled(request, tmp_path_factory):
    """A broker that has stopped, and a copy of its data directory as it was then."""
    folder = tmp_path_factory.mktemp("damaged")
    with BrokerProcess(folder / "data", properties=SETTINGS) as broker:
        with Cluster(broker.bootstrap) as cluster:
            producer = SyncProducer(cluster)
            for topic in EXPECTED:
                Admin(cluster).create_topic(topic, 1)
            for topic, records in EXPECTED.items():
                for first in range(0, BATCHES * RECORDS, RECORDS):
                    values = [NewRecord(records[offset]) for offset in range(first, first + RECORDS)]
                    producer.send(topic, 0, values)
        until(lambda: checkpointed(broker.data_dir))
        if request.param == "kill -9":
            broker.kill()
        else:
            broker.stop()
        shutil.copytree(broker.data_dir, folder / "good")
        yield broker, folder / "good"


def damaged(content, chance):
    """Returns the content with a flipped bit, a zeroed block, a cut tail or two parts that have changed places."""
    at = chance.randrange(len(content))
    length = min(chance.choice([4, 16, 64]), len(content) - at)
    other = chance.choice([*range(at - length + 1), *range(at + length, len(content) - length + 1)] or [at])
    swapped = bytearray(content)
    swapped[at : at + length] = content[other : other + length]
    swapped[other : other + length] = content[at : at + length]
    flipped = content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
    zeroed = content[:at] + bytes(length) + content[at + length :]
    return chance.choice([flipped, flipped, zeroed, content[:at], bytes(swapped[: len(content)])])


def offsets_of(content, original):
    """Returns the offsets of those batches of the original that the content has no longer at their place."""
    lost = set()
    for position, header in walk(original):
        end = position + header.size_bytes
        if content[position:end] != original[position:end]:
            lost |= set(range(header.base_offset, header.next_offset))
    return lost


def damage(data_dir, topic, chance):
    """Damages or deletes a file of a topic; returns it, and the offsets whose batches are gone with it."""
    folder = data_dir / f"{topic}-0"
    files = sorted(path for path in folder.iterdir() if path.stat().st_size)
    path = chance.choice([*files, *(one for one in files if one.suffix == ".log")])
    original = path.read_bytes()
    content = b"" if (is_deleted := chance.random() < 0.1) else damaged(original, chance)
    if is_deleted:
        path.unlink()
    else:
        path.write_bytes(content)
    return path, offsets_of(content, original) if path.suffix == ".log" else set()


def read_topic(broker, topic):
    with SimpleConsumer(broker.bootstrap, accept_missing_offsets=True) as consumer:
        return {record.offset: record.value for record in consumer.messages(topic, 0)}


def served(broker, topic, offsets):
    with SimpleConsumer(broker.bootstrap) as consumer:
        answers = [consumer.fetch(topic, 0, offset, max_bytes=1) for offset in sorted(offsets)]
    batches = (batch for answer in answers for batch in answer.batches())
    return {record.offset: record.value for batch in batches for record in batch.records()}


def damage_in_health(broker):
    with urllib.request.urlopen(read_request(broker, "readyz")) as answer:
        return json.load(answer)["checks"]["damage"]


def named_by(broker):
    """Returns all that the log, health and a check of all segments say of files."""
    with urllib.request.urlopen(change_request(broker, "maintenance/verify")) as answer:
        reports = answer.read().decode()
    return "\n".join([broker.read_log(), *damage_in_health(broker), reports])


def restored(broker, good):
    shutil.rmtree(broker.data_dir)
    shutil.copytree(good, broker.data_dir)


@pytest.mark.timeout(3600)
@pytest.mark.broker_errors(r"segments\.damage_search: ", r"recovery\.loading: ")
@pytest.mark.soak(rounds=1, soak_rounds=17)
def test_damage_costs_what_it_hit_and_is_named(filled, rounds):
    """A round damages a file of each of 30 topics.

    After a clean stop nobody has compared CRCs. A reader that meets two damaged batches side by side may pass over one
    behind them; the broker serves it to whoever asks for it.
    """
    broker, good = filled
    for seed in rounds:
        chance = random.Random(seed)
        restored(broker, good)
        hit = {topic: damage(broker.data_dir, topic, chance) for topic in TOPICS}
        broker.start()
        try:
            found = {topic: read_topic(broker, topic) for topic in EXPECTED}
            for topic, (_, lost) in hit.items():
                found[topic] |= served(broker, topic, EXPECTED[topic].keys() - found[topic].keys() - lost)
            named = named_by(broker)
        finally:
            broker.stop()
        for topic, (path, lost) in hit.items():
            told = f"seed {seed}, {path.relative_to(broker.data_dir)}"
            assert found[topic].items() <= EXPECTED[topic].items(), told
            missing = EXPECTED[topic].keys() - found[topic].keys()
            assert missing <= lost, f"{told}: {sorted(missing - lost)}"
            assert not missing or f"{topic}-0" in named, told
        assert found[UNTOUCHED] == EXPECTED[UNTOUCHED]


@pytest.mark.broker_errors(r"segments\.damage_search: ", r"recovery\.loading: ")
def test_a_check_of_all_segments_adds_what_it_finds_to_what_is_named(filled):
    """Nobody has read the damaged record, and no start has compared its CRC after a clean stop."""
    broker, good = filled
    restored(broker, good)
    path = sorted((broker.data_dir / f"{TOPICS[0]}-0").glob("*.log"))[1]
    content = path.read_bytes()
    position, header = list(walk(content))[2]
    at = position + header.size_bytes - 3
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    named = f"{path}: offsets {header.base_offset} to {header.next_offset - 1} are damaged"
    broker.start()
    try:
        urllib.request.urlopen(change_request(broker, "maintenance/verify")).close()
        [told] = damage_in_health(broker)
        broker.restart()
        assert damage_in_health(broker) == [told]
        with urllib.request.urlopen(read_request(broker, "metrics")) as answer:
            metrics = answer.read().decode()
        assert f'millrace_log_directory_damaged_ranges{{directory="{broker.data_dir}"}} 1.0' in metrics
        doctor = CommandRunner().invoke(app, ["doctor", "--bootstrap", broker.bootstrap, "--json"])
        findings = {one["thing"]: one for one in json.loads(doctor.stdout)}
    finally:
        broker.stop()
    assert told.startswith(named)
    assert findings["damaged ranges of logs"]["found"] == f"1 in {TOPICS[0]}-0 in {broker.data_dir}"
    assert findings["damaged ranges of logs"]["level"] == "problem"


@pytest.mark.timeout(3600)
@pytest.mark.broker_errors(r"segments\.damage_search: ", r"recovery\.loading: ")
@pytest.mark.soak(rounds=1, soak_rounds=17)
def test_a_repair_closes_what_is_damaged(filled, rounds):
    """Health is green afterwards, all that could be read is read, up to the end, and appends go on there."""
    broker, good = filled
    for seed in rounds:
        chance = random.Random(seed)
        restored(broker, good)
        hit = {topic: damage(broker.data_dir, topic, chance) for topic in TOPICS}
        broker.start()
        try:
            before = {topic: read_topic(broker, topic) for topic in EXPECTED}
            urllib.request.urlopen(change_request(broker, "maintenance/verify")).close()
            assert damage_in_health(broker), f"seed {seed}"
        finally:
            broker.stop()
        assert CommandRunner().invoke(app, ["verify", "--repair", str(broker.data_dir)]).exit_code == 0, f"seed {seed}"
        broker.start()
        try:
            assert damage_in_health(broker) == [], f"seed {seed}"
            with Cluster(broker.bootstrap) as cluster:
                for topic in EXPECTED:
                    SyncProducer(cluster).send(topic, 0, [NewRecord(b"more")])
            after = {topic: read_topic(broker, topic) for topic in EXPECTED}
        finally:
            broker.stop()
        for topic, records in EXPECTED.items():
            told = f"seed {seed}, {topic}, {hit.get(topic)}"
            assert after[topic].pop(BATCHES * RECORDS) == b"more", told
            assert before[topic].items() <= after[topic].items() <= records.items(), told


@pytest.mark.timeout(3600)
@pytest.mark.broker_errors(r"segments\.damage_search: ", r"recovery\.loading: ")
@pytest.mark.parametrize("name", DATA_DIR_FILES)
def test_damage_of_a_checkpoint_costs_nothing(filled, name):
    broker, good = filled
    chance = random.Random(name)
    for _ in range(3):
        restored(broker, good)
        path = Path(broker.data_dir, name)
        path.write_bytes(damaged(path.read_bytes() or b"0\n1\ntopic-0 0 99999\n", chance))
        broker.start()
        try:
            assert {topic: read_topic(broker, topic) for topic in EXPECTED} == EXPECTED
        finally:
            broker.stop()


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """A broker that has stopped, to which ten groups had committed, and a copy of its data directory."""
    folder = tmp_path_factory.mktemp("committed")
    settings = {**SETTINGS, "offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": "100000"}
    with BrokerProcess(folder / "data", properties=settings) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic(UNTOUCHED, 1)
        for number in range(10):
            with SimpleConsumer(broker.bootstrap) as consumer:
                consumer.commit_offsets(f"group-{number}", {(UNTOUCHED, 0): number})
        broker.stop()
        shutil.copytree(broker.data_dir, folder / "good")
        yield broker, folder / "good"


@pytest.mark.broker_errors(r"segments\.damage_search: ", r"recovery\.loading: ", r"replication\.shards: ")
@pytest.mark.parametrize("byte", [3, 9, 16, 20, 80], ids=["offset", "length", "magic", "CRC", "record"])
def test_a_damaged_commit_loses_no_other_groups_offset(committed, byte):
    broker, good = committed
    restored(broker, good)
    [path] = Path(broker.data_dir, "__consumer_offsets-0").glob("*.log")
    content = path.read_bytes()
    position, header = list(walk(content))[4]
    path.write_bytes(
        content[: position + byte] + bytes([content[position + byte] ^ 4]) + content[position + byte + 1 :]
    )
    broker.start()
    try:
        with SimpleConsumer(broker.bootstrap) as consumer:
            found = [consumer.fetch_offsets(f"group-{number}", [(UNTOUCHED, 0)])[UNTOUCHED, 0] for number in range(10)]
        named = named_by(broker)
    finally:
        broker.stop()
    assert [*found[:4], *found[5:]] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert f"offsets {header.base_offset} to {header.next_offset - 1} are damaged" in named


@pytest.mark.parametrize("at", [0, 8, 12, 22, 30, 42, 43], ids=str)
@pytest.mark.parametrize("bit", [0, 1, 5, 7], ids=str)
def test_a_flipped_topic_id_empties_no_topic(filled, at, bit):
    broker, good = filled
    restored(broker, good)
    path = Path(broker.data_dir, f"{TOPICS[0]}-0", "partition.metadata")
    content = path.read_bytes()
    path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
    broker.start()
    try:
        assert read_topic(broker, TOPICS[0]) == EXPECTED[TOPICS[0]]
    finally:
        broker.stop()
    if b"topic_id: " in path.read_bytes()[:at]:  # the last character has bits that count for nothing
        assert path.read_bytes()[:42] == content[:42]
