"""A consumer group's records against those that Apache Kafka 4.1 wrote.

The data are all records of `__consumer_offsets` after: a static member with a rack and the range assignor, another
member beside it, a commit, both leaving; a pattern; a classic group that became a consumer group and a classic
one again.
"""

import json
from pathlib import Path
from uuid import UUID

import pytest

from millrace.errors import CorruptRecordError
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicIdPartition, TopicInfo
from millrace_broker.groups.consumer.change import group_hash
from millrace_broker.groups.consumer.member import (
    ClassicMetadata,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
)
from millrace_broker.groups.consumer.records import (
    GroupEpoch,
    GroupRecord,
    Key,
    Kind,
    ResolvedRegularExpression,
    TargetEpoch,
    TopicPartitions,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from millrace_broker.groups.consumer.state import GroupState

DATA = Path(__file__).parent / "data" / "kafka_41_consumer_offsets.json"
WEATHER = UUID("67536175-3c5b-4a56-a2ae-79e6f22fcae8")
WIND = UUID("717df36f-75a5-4253-a87c-28bb58cf4e73")


@pytest.fixture(scope="module")
def written():
    """Kafka's own bytes: (key, value)."""
    return [
        (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        for key, value in json.loads(DATA.read_text(encoding="utf-8"))
    ]


@pytest.fixture(scope="module")
def ours(written):
    """What they say."""
    decoded = [(decode_key(key), value) for key, value in written]
    return [
        GroupRecord(key, None if value is None else decode_value(key.kind, value))
        for key, value in decoded
        if key is not None
    ]


def topic(name, topic_id, partitions):
    return TopicInfo(name, topic_id, tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(partitions)), {})


def image_of(*topics, rack=None):
    return MetadataImage("cluster", 1, {1: BrokerInfo(1, "localhost", 9092, rack)}, {one.name: one for one in topics})


def test_each_record_is_written_as_kafka_writes_it(written, ours):
    expected = [(key, value) for key, value in written if decode_key(key) is not None]
    assert len(expected) == 64
    assert [
        (encode_key(key), None if value is None else encode_value(key.kind, value)) for key, value in ours
    ] == expected


def test_offsets_and_classic_groups_are_not_ours(written):
    assert {key[1] for key, _ in written if decode_key(key) is None} == {1, 2}


def test_what_a_member_says_of_itself(ours):
    metadata = ours[0].value
    assert metadata == MemberMetadata(
        instance_id="i1",
        rack_id="r1",
        client_id="rdkafka",
        client_host="/127.0.0.1",
        topic_names=frozenset(("weather", "wind")),
        topic_regex="",
        rebalance_timeout_ms=300_000,
        server_assignor="range",
    )


def test_a_classic_member_in_a_consumer_group(ours):
    classic = next(value.classic for key, value in ours if key.kind is Kind.MEMBER and value and value.classic)
    assert classic.session_timeout_ms == 10_000
    assert [protocol.name for protocol in classic.protocols] == ["range"]


def test_a_pattern_and_what_it_matched(ours):
    resolved = next(record for record in ours if record.key.kind is Kind.REGULAR_EXPRESSION)
    assert resolved.key.name == "(^we.*)"
    assert resolved.value.topic_names == {"weather"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("weather", "wind"), -738096634340687121),
        (("wind",), -6031299651060894122),
        (("weather", "no such topic"), 1024412626109166060),
        ((), 0),
    ],
)
def test_the_metadata_hash_is_kafkas(names, expected):
    assert group_hash(names, image_of(topic("weather", WEATHER, 4), topic("wind", WIND, 2))) == expected


def test_the_metadata_hash_tells_partitions_racks_and_topics_apart():
    images = (
        image_of(topic("weather", WEATHER, 4)),
        image_of(topic("weather", WEATHER, 5)),
        image_of(topic("weather", WIND, 4)),
        image_of(topic("weather", WEATHER, 4), rack="r1"),
        image_of(topic("weather", WEATHER, 4), rack="r2"),
    )
    assert len({group_hash(("weather",), image) for image in images}) == len(images)


def test_a_group_is_the_sum_of_its_records(ours):
    group = GroupState("g1")
    for record in [one for one in ours if one.key.group_id == "g1"][:15]:
        group.replay(record)
    static = group.static_member("i1")
    assert (group.epoch, group.target_epoch, group.state_name) == (2, 2, "Stable")
    assert {member.current.epoch for member in group.members.values()} == {2}
    assert static.current.assigned == {(WEATHER, 0), (WEATHER, 1), (WIND, 0)}
    assert len(group.owners) == 6


def test_all_members_have_left_at_the_end(ours):
    groups = {}
    for record in ours:
        groups.setdefault(record.key.group_id, GroupState(record.key.group_id)).replay(record)
    assert {name: (group.epoch, group.state_name) for name, group in groups.items()} == {
        "g1": (4, "Empty"),
        "g2": (3, "Empty"),
        "g3": (0, "Empty"),
    }
    assert all(not group.owners and not group.targets and not group.patterns for group in groups.values())


VALUES = [
    (Kind.GROUP, GroupEpoch(7)),
    (Kind.GROUP, GroupEpoch(7, -5)),
    (Kind.PARTITIONS, (TopicPartitions(WIND, "wind", 2),)),
    (Kind.MEMBER, MemberMetadata(client_id="c", client_host="/h", classic=ClassicMetadata(1, ()))),
    (Kind.TARGET_EPOCH, TargetEpoch(3)),
    (Kind.TARGET, frozenset((TopicIdPartition(WIND, 1), TopicIdPartition(WEATHER, 0)))),
    (
        Kind.CURRENT,
        CurrentAssignment(3, 2, MemberState.UNREVOKED_PARTITIONS, frozenset(), frozenset((TopicIdPartition(WIND, 1),))),
    ),
    (Kind.REGULAR_EXPRESSION, ResolvedRegularExpression(frozenset(("ä", "b")), 1 << 40, 5)),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_values_come_back(kind, value):
    assert decode_value(kind, encode_value(kind, value)) == value


def test_topics_with_racks_as_kafka_before_41_kept_them():
    """ConsumerGroupPartitionMetadataValue: one topic of one partition on two racks."""
    data = bytes.fromhex("000002") + WIND.bytes + bytes.fromhex("0577696e640000000102000000000302610262000000")
    assert decode_value(Kind.PARTITIONS, data) == (TopicPartitions(WIND, "wind", 1),)


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_values_cut_short_are_refused(kind, value):
    whole = encode_value(kind, value)
    for size in range(len(whole)):
        with pytest.raises(CorruptRecordError):
            decode_value(kind, whole[:size])


def test_a_metadata_hash_cut_short_is_refused():
    with pytest.raises(CorruptRecordError):
        decode_value(Kind.GROUP, bytes.fromhex("000000000007010002aabb"))


def test_a_newer_version_is_refused():
    with pytest.raises(CorruptRecordError, match="version 1"):
        decode_value(Kind.GROUP, b"\x00\x01\x00\x00\x00\x07\x00")


def test_a_state_that_is_not_known_is_kept_as_unknown():
    data = encode_value(Kind.CURRENT, CurrentAssignment(3, 2, MemberState.STABLE))
    changed = data[:10] + b"\x05" + data[11:]
    assert decode_value(Kind.CURRENT, changed).state is MemberState.UNKNOWN


def test_a_partition_that_half_done_compaction_gives_twice_is_the_newer_holders():
    one = TopicIdPartition(WIND, 0)
    group = GroupState("g")
    for name, assigned in (("a", {one}), ("b", {one}), ("a", set())):
        current = CurrentAssignment(1, 0, MemberState.STABLE, frozenset(assigned))
        group.replay(GroupRecord(Key(Kind.CURRENT, "g", name), current))
    assert group.owners == {one: "b"}
