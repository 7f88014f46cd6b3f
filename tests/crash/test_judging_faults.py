"""The judge of `test_two_hundred_faults.py` finds each wrong record that a test plants, and none in a run without."""

import contextlib
import copy
import json
import shutil
from itertools import islice
from typing import NamedTuple

import pytest
from chaos_load import Load, create_topics
from content_judge import content_findings
from crc32c import crc32c
from fault_plan import DAMAGE, FILES, IN_ONE_DEAL, PROCESS_FAULTS, WIPED, drawn
from replica_judge import HEADER, batches, replica_findings

from millrace.testing.broker import BrokerProcess

PROPERTIES = {
    "log.segment.bytes": "3000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
}
EVENTS, COPIES = 100, 100


class Played(NamedTuple):
    """A run without faults: its evidence and the broker's data directory."""

    evidence: object
    folder: object


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("played")
    with BrokerProcess(folder / "data", properties=PROPERTIES) as broker:
        create_topics(broker.bootstrap, 1)
        load = Load(broker.bootstrap, folder)
        load.start()
        with contextlib.closing(load):
            load.reader.await_more(EVENTS, COPIES, broker.read_log)
            load.finish()
            evidence = load.evidence()
    return Played(evidence, folder / "data")


def place_of(read, topic):
    """Returns the longest list of a topic's records."""
    return max((found for (name, _), found in read.items() if name == topic), key=len)


def lose_a_record(evidence):
    del place_of(evidence.final, "events")[7]


def lose_the_last_record(evidence):
    del place_of(evidence.final, "events")[-1]


def change_a_value(evidence):
    found = place_of(evidence.final, "events")
    found[7] = (found[7][0], None, b"9" + found[7][2])


def repeat_a_record(evidence):
    found = place_of(evidence.final, "events")
    found.append((found[-1][0] + 1, None, found[7][2]))


def keep_an_older_value(evidence):
    keep_the_oldest_of_a_key(place_of(evidence.final, "table"))


def keep_the_oldest_of_a_key(found):
    """Removes all records of a key but the first, which has another value than the last: a tombstone may be both."""
    oldest, newest = {one[1]: one for one in reversed(found)}, {one[1]: one for one in found}
    key = next(key for key, one in oldest.items() if one[2] != newest[key][2])
    found[:] = [one for one in found if one[1] != key or one is oldest[key]]


def lose_a_key(evidence):
    found = place_of(evidence.final, "table")
    key = next(one.key for one in reversed(evidence.sent) if one.topic == "table" and one.value is not None)
    for found in evidence.final.values():
        found[:] = [one for one in found if one[1] != key]


def forget_what_was_read(evidence):
    found = place_of(evidence.on_the_way, "copies")
    found[-1] = (found[-1][0], found[-1][1], found[-1][2] + b" ")


def skip_on_the_way(evidence):
    del place_of(evidence.on_the_way, "events")[7]


def read_twice(evidence):
    found = place_of(evidence.on_the_way, "events")
    found.insert(9, found[7])


def copied(evidence, at, **changes):
    found = place_of(evidence.final, "copies")
    offset, key, value = found[at]
    return offset, key, json.dumps(json.loads(value) | changes).encode()


def read_what_was_aborted(evidence):
    found = place_of(evidence.final, "copies")
    found[0] = copied(evidence, 0, doomed=True)


def tear_a_transaction(evidence):
    found = place_of(evidence.final, "copies")
    found[0] = copied(evidence, 0, transaction="another")


def copy_twice(evidence):
    found = place_of(evidence.final, "copies")
    found.append((found[-1][0] + 5, *copied(evidence, 3, transaction="another", copies=1)[1:]))


def copy_what_is_not_there(evidence):
    found = place_of(evidence.final, "copies")
    found.append((found[-1][0] + 5, *copied(evidence, 3, transaction="another", copies=1, of=[0, 9999])[1:]))


def commit_too_little(evidence):
    evidence.committed[0] -= 1


def lose_a_copy(evidence):
    del place_of(evidence.final, "copies")[3]


def keep_an_older_copy(evidence):
    keep_the_oldest_of_a_key(place_of(evidence.final, "latest"))


PLANTED = [
    (lose_a_record, "lost"), (lose_the_last_record, "lost"), (change_a_value, "lost"), (change_a_value, "foreign"),
    (repeat_a_record, "duplicate"), (keep_an_older_value, "stale"), (lose_a_key, "stale"),
    (forget_what_was_read, "gone"), (skip_on_the_way, "skipped"), (read_twice, "read again"),
    (read_what_was_aborted, "aborted"), (tear_a_transaction, "torn"), (copy_twice, "copied wrongly"),
    (copy_what_is_not_there, "copied wrongly"), (commit_too_little, "offsets and copies differ"),
    (lose_a_copy, "offsets and copies differ"), (lose_a_copy, "torn"), (keep_an_older_copy, "not the newest"),
]  # fmt: skip


def test_a_run_without_faults_has_no_findings(played):
    assert list(content_findings(*played.evidence)) == []
    assert any(one.value is None for one in played.evidence.sent)


@pytest.mark.parametrize(("plant", "word"), PLANTED, ids=lambda one: getattr(one, "__name__", one))
def test_what_is_planted_in_the_content_is_found(played, plant, word):
    evidence = copy.deepcopy(played.evidence)
    plant(evidence)
    found = list(content_findings(*evidence))
    assert [one for one in found if one.startswith(f"{word}: ")], found


@pytest.fixture
def replicas(played, tmp_path):
    """Three data directories that are equal."""
    folders = {number: tmp_path / str(number) for number in (1, 2, 3)}
    for folder in folders.values():
        shutil.copytree(played.folder, folder)
    return folders


def logs(folder, topic):
    return sorted((folder / f"{topic}-0").glob("*.log"))


def test_equal_replicas_have_no_findings(replicas):
    assert list(replica_findings(replicas)) == []


def test_replicas_may_roll_at_different_offsets(replicas):
    first, second, *_ = logs(replicas[2], "events")
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()
    assert list(replica_findings(replicas)) == []


@pytest.mark.parametrize("topic", ["events", "copies", "table", "latest", "__consumer_offsets", "__transaction_state"])
@pytest.mark.parametrize("byte", [7, 11, 14, 17, 61, 75])
def test_a_flipped_byte_is_found(replicas, topic, byte):
    """Of a base offset, a length, a leader epoch, a CRC, or a record; the epoch lies outside the CRC."""
    path = logs(replicas[2], topic)[0]
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)
    found = list(replica_findings(replicas))
    assert found or (byte == 14 and topic not in ("events", "copies"))


@pytest.mark.parametrize("topic", ["events", "copies", "table", "latest", "__consumer_offsets", "__transaction_state"])
def test_a_lost_end_is_found(replicas, topic):
    path = [path for path in logs(replicas[3], topic) if path.stat().st_size][-1]
    content = path.read_bytes()
    *_, last = (raw for _, raw, _ in batches(path.parent))
    path.write_bytes(content[: -len(last)])
    assert list(replica_findings(replicas))


def lose_first_batch(path):
    """Cuts the first batch out of a segment."""
    content = path.read_bytes()
    _, size = HEADER.unpack_from(content)
    path.write_bytes(content[HEADER.size + size :])


def test_a_missing_segment_and_a_lost_batch_are_found(replicas):
    lose_first_batch(logs(replicas[1], "events")[1])
    logs(replicas[2], "copies")[1].unlink()
    logs(replicas[3], "events")[0].unlink()
    shutil.rmtree(replicas[3] / "latest-0")
    assert [one.partition(" ")[0].rstrip(":") for one in replica_findings(replicas)] == [
        "copies-0",
        "events-0",
        "events-0",
        "latest-0",
    ]


def test_what_is_left_of_damage_is_found(replicas):
    (replicas[1] / "events-0" / "damaged-ranges").write_text("version: 0\n")
    assert list(replica_findings(replicas)) == ["events-0/damaged-ranges of broker 1 is left of damage"]


def test_a_compacted_replica_is_equal_to_one_that_is_not(replicas):
    """The oldest batch of a key goes, since the key has a newer value."""
    lose_first_batch(logs(replicas[2], "table")[0])
    assert list(replica_findings(replicas)) == []


def test_an_aborted_value_does_not_count_and_a_committed_one_does(replicas):
    """The markers of one replica are exchanged, so that it keeps what was aborted and drops what was committed."""
    for path in logs(replicas[2], "latest"):
        content = bytearray(path.read_bytes())
        position = 0
        for _, raw, batch in batches(path.parent):
            if raw in content and batch.is_control_batch:
                position = content.index(raw, position)
                content[position : position + len(raw)] = with_other_marker(raw)
        path.write_bytes(content)
    assert any("differ" in one for one in replica_findings(replicas))


def with_other_marker(raw):
    """Returns a control batch whose marker commits where it aborted, and the other way round, with its CRC."""
    changed = bytearray(raw)
    changed[69] ^= 1  # after the header: length, attributes, two deltas, the key's length, its version, its type
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def test_a_seed_draws_the_same_faults_and_a_third_is_damage():
    first, again, other = (list(islice(drawn(seed, (*DAMAGE, WIPED)), 210)) for seed in (5, 5, 6))
    assert first == again != other
    assert [sum(one.is_damage for one in first[at : at + IN_ONE_DEAL]) for at in range(0, 210, IN_ONE_DEAL)] == [1] * 70
    assert {one.kind for one in first} == {*PROCESS_FAULTS, *DAMAGE, WIPED}
    assert {one.files for one in first} == {*FILES, None}
    assert {one.broker for one in first} == {1, 2, 3}
