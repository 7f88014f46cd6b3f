"""`millrace mirror audit` on brokers of Millrace and of Apache Kafka: each kind of difference is on a line of its own.

What stands for a mirror here is a few lines that write the target, so that any fault of one can be written.
"""

import json
from itertools import count
from uuid import uuid4

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, Groups, SyncProducer
from millrace.client.groups import GroupOffset
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_ops.cli.app import app
from millrace_pipelines.mirror import audit
from millrace_pipelines.mirror.audited_logs import read_offset_map
from millrace_pipelines.mirror.offset_map import MappedRuns, Run
from millrace_pipelines.mirror.offset_map_topic import OFFSET_MAP_TOPIC, create_offset_map_topic, map_records
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import State, States, TopicState
from millrace_support.command_runner import CommandRunner

NAMES = count()
RECORDS = [NewRecord(b"v%d" % each, b"k%d" % (each % 3), 1000 + each, (("h", b"%d" % each),)) for each in range(20)]


@pytest.fixture(scope="module", params=["millrace", "3.9", "4.1"])
def bootstrap(request, find_peer, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "millrace":
        with BrokerProcess(folder) as started:
            yield started.bootstrap
        return
    zookeeper = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}" if request.param == "3.9" else None
    with KafkaBroker(find_peer(request.param), folder, zookeeper=zookeeper) as started:
        yield started.bootstrap


@pytest.fixture(scope="module")
def cluster(bootstrap):
    with Cluster(bootstrap) as opened:
        yield opened


@pytest.fixture
def topic(cluster):
    """Returns the name of a topic with the records, whose mirror, east.NAME, is there but empty."""
    name = f"t{next(NAMES)}"
    Admin(cluster).create_topic(name, 1, 1)
    Admin(cluster).create_topic(f"east.{name}", 1, 1)
    write(cluster, name, RECORDS)
    return name


def write(cluster, topic, records):
    for at in range(0, len(records), 7):
        SyncProducer(cluster).send(topic, 0, records[at : at + 7])


def audited(bootstrap, topic, *options):
    command = ["mirror", "audit", "--source", f"east={bootstrap}", "--target", bootstrap, "--topics", topic, *options]
    return CommandRunner().invoke(app, command)


def differences(bootstrap, topic):
    """Returns the lines of differences, without the place that each begins with."""
    result = audited(bootstrap, topic)
    place = f"east/{topic}-0: "
    found = [one.removeprefix(place) for one in result.stdout.splitlines() if one.startswith(place)]
    assert result.exit_code == (1 if found else 0), result.output
    return found


def has_state(bootstrap, cluster, topic, way, state=State.MIRRORING):
    with Producer(broker_list=bootstrap) as producer:
        states = States(cluster, producer)
        states.create()
        states.write(TopicState(source="east", topic=topic, target_topic=f"east.{topic}", way=way, state=state))


def changed(at, **fields):
    return [one._replace(**fields) if index == at else one for index, one in enumerate(RECORDS)]


COPIES = {
    "equal": (RECORDS, []),
    "lacks one": (RECORDS[:5] + RECORDS[6:], ["source 5: missing at the target"]),
    "lacks the last": (RECORDS[:-1], ["source 19: missing at the target"]),
    "has one twice": ([*RECORDS[:9], RECORDS[3], *RECORDS[9:]], ["source 3, target 9: twice at the target"]),
    "has one of its own": ([*RECORDS, NewRecord(b"?")], ["target 20: only at the target"]),
    "another order": (
        [*RECORDS[1:9], RECORDS[0], *RECORDS[9:]],
        ["source 0, target 8: in another order"],
    ),
    "another key": (changed(4, key=None), ["source 4, target 4: not the same (other key)"]),
    "another value": (changed(4, value=b""), ["source 4, target 4: not the same (other value)"]),
    "other headers": (changed(4, headers=()), ["source 4, target 4: not the same (other headers)"]),
    "another time": (changed(4, timestamp_ms=1), ["source 4, target 4: not the same (other timestamp)"]),
}


@pytest.mark.parametrize("fault", COPIES)
def test_each_difference_of_a_copy_is_on_a_line(bootstrap, cluster, topic, fault):
    records, expected = COPIES[fault]
    write(cluster, f"east.{topic}", records)
    assert differences(bootstrap, topic) == expected


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("equal", []),
        ("lacks the last", []),  # which is still to come
        ("another value", ["source 4, target 4: not the same (other value)"]),
        ("another time", ["source 4, target 4: not the same (other timestamp)"]),
        ("has one of its own", ["target 20: only at the target (offsets up to 20; the source ends at 20)"]),
    ],
)
def test_each_difference_of_a_followed_topic_is_on_a_line(bootstrap, cluster, topic, fault, expected):
    records, _ = COPIES[fault]
    write(cluster, f"east.{topic}", records)
    has_state(bootstrap, cluster, topic, Way.FOLLOW)
    assert [one for one in differences(bootstrap, topic) if "in batches of other bytes" not in one] == expected


def test_what_is_still_to_come_is_said_and_is_no_difference(bootstrap, cluster, topic):
    write(cluster, f"east.{topic}", RECORDS[:14])
    Groups(cluster).commit("millrace-mirror-east", {(f"east.{topic}", 0): GroupOffset(14, "")})
    result = audited(bootstrap, topic, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (found["records"], found["to_come"], found["differences"]) == (14, 6, [])


def in_transactions(bootstrap, topic, *ends):
    """Writes the records in one transaction after the other, which end as given: committed or aborted."""
    with Producer(broker_list=bootstrap, transactional_id=f"to-{topic}") as producer:
        producer.init_transactions()
        for is_committed in ends:
            producer.begin_transaction()
            for one in RECORDS:
                producer.send(topic, one.value, key=one.key, partition=0, timestamp_ms=one.timestamp_ms,
                              headers=one.headers)  # fmt: skip
            producer.commit_transaction() if is_committed else producer.abort_transaction()


def test_records_of_aborted_transactions_are_no_difference(bootstrap, cluster, topic):
    in_transactions(bootstrap, f"east.{topic}", False, True)
    assert differences(bootstrap, topic) == []
    in_transactions(bootstrap, topic, False)
    assert differences(bootstrap, topic) == []
    in_transactions(bootstrap, topic, True)
    assert len(differences(bootstrap, topic)) == 10 + 1


def test_what_either_side_has_deleted_is_no_difference(bootstrap, cluster, topic):
    write(cluster, f"east.{topic}", RECORDS)
    Admin(cluster).delete_records(f"east.{topic}", 0, 6)
    assert differences(bootstrap, topic) == []
    Admin(cluster).delete_records(topic, 0, 11)
    assert differences(bootstrap, topic) == []


def test_what_is_deleted_whenever_an_offset_map_is_read_is_no_difference(bootstrap, cluster, topic, monkeypatch):
    """A map of many runs takes longer to read than retention takes to delete the next segment."""
    write(cluster, f"east.{topic}", RECORDS)
    ends = count(1)

    def read_meanwhile(*place):
        Admin(cluster).delete_records(topic, 0, end := next(ends))
        Admin(cluster).delete_records(f"east.{topic}", 0, end + 1)
        return read_offset_map(*place)

    monkeypatch.setattr(audit, "read_offset_map", read_meanwhile)
    assert differences(bootstrap, topic) == []
    assert next(ends) == 2, "it was compared at once"


def test_records_of_its_own_after_a_switch_over_are_no_difference(bootstrap, cluster, topic):
    write(cluster, f"east.{topic}", [*RECORDS, NewRecord(b"own")])
    assert differences(bootstrap, topic) == ["target 20: only at the target"]
    has_state(bootstrap, cluster, topic, Way.COPY, State.SWITCHED)
    assert differences(bootstrap, topic) == []


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (RECORDS[-3:], []),
        (RECORDS[10:], []),
        (RECORDS[-2:], ["source 17: missing at the target"]),
        ([*RECORDS[-4:-3], *RECORDS[-2:]], ["source 17: missing at the target"]),
        ([RECORDS[-2], RECORDS[-3], RECORDS[-1]], ["source 18, target 0: in another order"]),
        (
            [*RECORDS[-3:-1], RECORDS[-1]._replace(value=b"?")],
            ["source 19, target 2: not the same (newest of its key)"],
        ),
        ([*RECORDS[-3:], NewRecord(b"?", b"?")], ["target 3: only at the target"]),
        ([*RECORDS[-3:], NewRecord(None, b"?")], []),
    ],
)
def test_only_the_newest_record_of_each_key_is_needed_where_topics_are_compacted(bootstrap, cluster, kept, expected):
    name = f"t{next(NAMES)}"
    for each in (name, f"east.{name}"):
        Admin(cluster).create_topic(each, 1, 1, {"cleanup.policy": "compact"})
    write(cluster, name, RECORDS)
    write(cluster, f"east.{name}", kept)
    assert differences(bootstrap, name) == expected


def test_further_differences_are_counted(bootstrap, topic):
    result = audited(bootstrap, topic, "--limit", "3")
    lines = [one for one in result.stdout.splitlines() if one.startswith(f"east/{topic}-0: ")]
    assert len(lines) == 4
    assert lines[-1] == f"east/{topic}-0: 17 more differences"


def test_an_offset_map_has_to_say_what_is_found(bootstrap, cluster, topic):
    write(cluster, f"east.{topic}", RECORDS)
    create_offset_map_topic(cluster)
    with Producer(broker_list=bootstrap) as producer:
        for runs in ([Run(0, 0, 12)], [Run(12, 13, 8)]):
            for index, key, value in map_records("east", topic, 0, MappedRuns(runs[-1].source_end, runs)):
                producer.send(OFFSET_MAP_TOPIC, value, key=key, partition=index)
    found = differences(bootstrap, topic)
    assert found[0] == "source 13, target 13: elsewhere by the offset map (at 14)"


def test_a_topic_that_the_target_lacks_is_a_difference_once_it_is_mirrored(bootstrap, cluster, topic):
    has_state(bootstrap, cluster, topic, Way.FOLLOW)
    Admin(cluster).delete_topic(f"east.{topic}")
    [found] = differences(bootstrap, topic)
    assert "not to be read" in found
