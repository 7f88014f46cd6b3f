"""Transcripts of the consumer group protocol: who asks what, who is answered what (KIP-848)."""

from uuid import UUID

import pytest

from millrace.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InvalidConfigError,
    InvalidGroupRequestError,
    InvalidRegularExpressionError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.groups.consumer.change import Change, DecisionContext
from millrace_broker.groups.consumer.events import Heartbeat
from millrace_broker.groups.consumer.heartbeat import check_heartbeat, heartbeat, leave
from millrace_broker.groups.consumer.member import NOTHING, MemberState, any_topic
from millrace_broker.groups.consumer.records import Kind, TopicPartitions
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig

IDS = {"a": UUID(int=1), "b": UUID(int=2), "ab": UUID(int=3)}


def image_of(**counts):
    topics = {
        name: TopicInfo(name, IDS[name], tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(count)), {})
        for name, count in counts.items()
    }
    return MetadataImage("cluster", 1, {1: BrokerInfo(1, "localhost", 9092)}, topics)


def ask(member_id, epoch, **said):
    if epoch == 0:
        said = {"rebalance_timeout_ms": 1000, "topic_names": frozenset("a"), "owned": NOTHING} | said
    return Heartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **said)


class Coordinator:
    """A group, its records, and what is around it."""

    def __init__(self, config=None, **counts):
        self.config = config or ConsumerGroupConfig()
        self.image = image_of(**(counts or {"a": 4}))
        self.state = GroupState("g")
        self.now_ms = 0
        self.kinds = []
        self.may_describe = any_topic

    def decide(self, what):
        change = Change(self.state, DecisionContext(self.config, self.image, self.now_ms, self.may_describe))
        answer = what(change)
        self.state = change.state
        self.kinds = [record.key.kind for record in change.records]
        return answer

    def heartbeat(self, member_id, epoch, **said):
        request = ask(member_id, epoch, **said)
        check_heartbeat(request, self.config)
        return self.decide(
            lambda change: leave(change, request) if request.leaves else heartbeat(change, request, member_id)
        )

    def owned(self, member_id):
        return indexes(self.state.members[member_id].current.assigned)


def indexes(assignment):
    return None if assignment is None else sorted(one.partition for one in assignment)


def partitions(assignment, *keep):
    return frozenset(one for one in assignment if one.partition in keep)


def test_the_first_member_gets_everything_at_once():
    group = Coordinator()
    answer = group.heartbeat("m1", 0)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m1", 1, 5000)
    assert indexes(answer.assignment) == [0, 1, 2, 3]
    assert group.kinds == [Kind.MEMBER, Kind.GROUP, Kind.TARGET, Kind.TARGET_EPOCH, Kind.CURRENT]
    assert group.state.state_name == "Stable"


def test_a_heartbeat_without_news_writes_nothing():
    group = Coordinator()
    group.heartbeat("m1", 0)
    answer = group.heartbeat("m1", 1)
    assert (answer.member_epoch, answer.assignment, group.kinds) == (1, None, [])


def test_a_second_member_waits_until_the_first_has_given_back():
    group = Coordinator()
    all_four = group.heartbeat("m1", 0).assignment
    assert indexes(group.heartbeat("m2", 0).assignment) == []
    assert group.state.state_name == "Reconciling"
    told = group.heartbeat("m1", 1)
    assert (told.member_epoch, indexes(told.assignment)) == (1, [0, 1])
    assert group.heartbeat("m2", 2).assignment is None
    assert group.heartbeat("m1", 1).assignment is None, "it has not said yet what it owns"
    assert group.heartbeat("m1", 1, owned=all_four).member_epoch == 1
    assert group.heartbeat("m1", 1, owned=partitions(all_four, 0, 1)).member_epoch == 2
    assert indexes(group.heartbeat("m2", 2).assignment) == [2, 3]
    assert group.state.state_name == "Stable"


def test_what_a_leaving_member_had_goes_to_the_others():
    group = Coordinator()
    group.heartbeat("m1", 0)
    group.heartbeat("m2", 0)
    assert group.heartbeat("m1", -1).member_epoch == -1
    assert group.state.state_name == "Assigning"
    answer = group.heartbeat("m2", 2)
    assert (answer.member_epoch, indexes(answer.assignment)) == (3, [0, 1, 2, 3])


def test_an_answer_that_was_lost_is_given_again():
    group = Coordinator()
    group.heartbeat("m1", 0)
    again = group.heartbeat("m1", 0)
    assert (again.member_epoch, indexes(again.assignment)) == (1, [0, 1, 2, 3])


@pytest.mark.parametrize("epoch", [2, 17])
def test_an_epoch_ahead_is_fenced(epoch):
    group = Coordinator()
    group.heartbeat("m1", 0)
    with pytest.raises(FencedMemberEpochError, match=f"at epoch 1, not {epoch}"):
        group.heartbeat("m1", epoch)


def test_an_epoch_behind_is_fenced_unless_only_the_answer_was_lost():
    group = Coordinator()
    all_four = group.heartbeat("m1", 0).assignment
    group.heartbeat("m1", 1, topic_names=frozenset("ab"))
    assert group.state.members["m1"].current.epoch == 2
    assert group.heartbeat("m1", 1, owned=all_four).member_epoch == 2
    with pytest.raises(FencedMemberEpochError, match="at epoch 2, not 1"):
        group.heartbeat("m1", 1)
    with pytest.raises(FencedMemberEpochError):
        group.heartbeat("m1", 0)


def test_a_member_that_is_not_there_is_unknown():
    group = Coordinator()
    for epoch in (1, -1):
        with pytest.raises(UnknownMemberIdError, match="m1 is not a member of group g"):
            group.heartbeat("m1", epoch)
    with pytest.raises(UnknownMemberIdError, match="no member of group g has the instance id i1"):
        group.heartbeat("m1", 1, instance_id="i1")


def test_a_full_group_takes_no_more():
    group = Coordinator(ConsumerGroupConfig(group_consumer_max_size=1))
    group.heartbeat("m1", 0)
    with pytest.raises(GroupMaxSizeReachedError, match="at most 1 members"):
        group.heartbeat("m2", 0)
    assert group.heartbeat("m1", 1).member_epoch == 1


def test_a_static_member_comes_back_to_its_partitions():
    group = Coordinator()
    group.heartbeat("m1", 0, instance_id="i1")
    group.heartbeat("m2", 0)
    group.heartbeat("m1", 1, owned=partitions(group.state.members["m1"].current.assigned, 0, 1), instance_id="i1")
    group.heartbeat("m1", 1, owned=frozenset(), instance_id="i1")
    group.heartbeat("m2", 2)
    had = group.owned("m1")
    assert group.heartbeat("m1", -2, instance_id="i1").member_epoch == -2
    assert group.kinds == [Kind.CURRENT]
    answer = group.heartbeat("m3", 0, instance_id="i1")
    assert (answer.member_epoch, indexes(answer.assignment)) == (2, had)
    assert group.state.epoch == 2, "nobody else is disturbed"
    assert group.state.members.keys() == {"m2", "m3"}
    with pytest.raises(FencedInstanceIdError, match="m1 is fenced: the instance id i1 belongs to member m3"):
        group.heartbeat("m1", 2, instance_id="i1")


def test_an_instance_id_in_use_is_not_given_to_another():
    group = Coordinator()
    group.heartbeat("m1", 0, instance_id="i1")
    with pytest.raises(UnreleasedInstanceIdError, match="member m1 has not left"):
        group.heartbeat("m2", 0, instance_id="i1")


def test_a_static_member_asks_to_join_again_when_its_answer_was_lost():
    group = Coordinator()
    group.heartbeat("m1", 0, instance_id="i1")
    assert group.heartbeat("m1", 0, instance_id="i1").member_epoch == 1


def test_a_static_member_that_leaves_for_good():
    group = Coordinator()
    group.heartbeat("m1", 0, instance_id="i1")
    assert group.heartbeat("m1", -1, instance_id="i1").member_epoch == -1
    assert group.state.state_name == "Empty"
    assert not group.state.static_members


def test_new_partitions_are_given_out():
    group = Coordinator(a=1)
    group.heartbeat("m1", 0)
    group.image = image_of(a=3)
    answer = group.heartbeat("m1", 1)
    assert (answer.member_epoch, indexes(answer.assignment)) == (2, [0, 1, 2])


def test_a_topic_that_appears_and_one_that_vanishes():
    group = Coordinator(a=1)
    group.heartbeat("m1", 0, topic_names=frozenset(("a", "b")))
    group.image = image_of(a=1, b=1)
    assert {one.topic_id for one in group.heartbeat("m1", 1).assignment} == {IDS["a"], IDS["b"]}
    group.image = image_of(b=1)
    answer = group.heartbeat("m1", 2)
    assert (answer.member_epoch, {one.topic_id for one in answer.assignment}) == (2, {IDS["b"]})
    assert group.state.members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS
    assert group.heartbeat("m1", 2, owned=answer.assignment).member_epoch == 3


def test_brokers_that_come_and_go_move_nothing():
    group = Coordinator(a=1)
    group.heartbeat("m1", 0)
    group.image = image_of(a=1)
    group.heartbeat("m1", 1)
    assert (group.kinds, group.state.epoch) == ([], 1)


def test_a_pattern_is_resolved_and_follows_the_topics():
    group = Coordinator(a=1, b=1)
    answer = group.heartbeat("m1", 0, topic_names=None, topic_regex="a.*")
    assert {one.topic_id for one in answer.assignment} == {IDS["a"]}
    assert Kind.REGULAR_EXPRESSION in group.kinds
    group.image = image_of(a=1, b=1, ab=1)
    group.now_ms = 9_999
    assert group.heartbeat("m1", 1).assignment is None, "not more often than every ten seconds"
    group.now_ms = 10_000
    assert {one.topic_id for one in group.heartbeat("m1", 1).assignment} == {IDS["a"], IDS["ab"]}


def test_a_pattern_stands_for_topics_that_the_member_may_know_of():
    group = Coordinator(a=1, b=1, ab=1)
    group.may_describe = {"a", "ab"}.__contains__
    group.heartbeat("m1", 0, topic_names=None, topic_regex=".*")
    assert group.state.patterns[".*"].topic_names == {"a", "ab"}
    group.may_describe, group.image = {"ab"}.__contains__, image_of(a=1, b=1, ab=1)
    group.heartbeat("m1", 1)
    assert group.state.patterns[".*"].topic_names == {"a", "ab"}, "it is resolved again after ten seconds"
    group.now_ms = 10_000
    group.heartbeat("m1", 1)
    assert group.state.patterns[".*"].topic_names == {"ab"}


def test_where_it_is_not_said_what_a_member_may_know_of_no_pattern_is_resolved():
    group = Coordinator(a=1)
    group.heartbeat("m1", 0, topic_names=None, topic_regex=".*")
    group.may_describe, group.image, group.now_ms = None, image_of(a=1, ab=1), 10_000
    group.heartbeat("m1", 1)
    assert group.state.patterns[".*"].topic_names == {"a"}
    group.may_describe = any_topic
    group.heartbeat("m1", 1)
    assert group.state.patterns[".*"].topic_names == {"a", "ab"}


def test_a_pattern_that_nobody_uses_is_forgotten():
    group = Coordinator(a=1, b=1)
    group.heartbeat("m1", 0, topic_regex="b")
    group.heartbeat("m1", 1, topic_regex="")
    assert not group.state.patterns
    group.heartbeat("m1", 1, topic_regex="ab?")
    group.heartbeat("m1", -1)
    assert not group.state.patterns


@pytest.mark.parametrize("pattern", ["(a", "[z-a]", "a{1001}", "(?=a)", "x" * 5000, "(a{100}|b){30}"])
def test_a_pattern_that_cant_be_read_is_refused(pattern):
    with pytest.raises(InvalidRegularExpressionError, match="SubscribedTopicRegex"):
        Coordinator().heartbeat("m1", 0, topic_regex=pattern)


def test_a_pattern_takes_no_more_time_than_its_length():
    """A backtracking engine would not come back from this one."""
    group = Coordinator(a=1)
    assert group.heartbeat("m1", 0, topic_names=None, topic_regex="(a|a)*" * 20 + "b").assignment == NOTHING


def test_most_members_choose_the_assignor():
    group = Coordinator(a=3)
    group.heartbeat("m1", 0, server_assignor="range")
    group.heartbeat("m2", 0, server_assignor="range")
    group.heartbeat("m3", 0, server_assignor="uniform")
    assert group.state.preferred_assignor("uniform") == "range"


def test_kafka_40s_topic_record_gives_way_to_the_hash():
    group = Coordinator()
    group.decide(lambda change: change.put(Kind.PARTITIONS, "", (TopicPartitions(IDS["a"], "a", 4),)))
    group.heartbeat("m1", 0)
    assert Kind.PARTITIONS in group.kinds
    assert not group.state.has_partitions_record


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ask("", 0), "MemberId is empty"),
        (ask("", 1, version=0), "MemberId is empty"),
        (ask("m" * 32_768, 0), "MemberId has more than 32767 bytes"),
        (ask("m", 0, instance_id=""), "InstanceId is empty"),
        (ask("m", 0, rack_id=" "), "RackId is empty"),
        (ask("m", 0, rebalance_timeout_ms=-1), "has to give its RebalanceTimeoutMs"),
        (ask("m", 0, owned=None), "TopicPartitions have to be an empty array"),
        (ask("m", 0, topic_names=None), "has to give SubscribedTopicNames or SubscribedTopicRegex"),
        (ask("m", -2), "has to name its InstanceId"),
        (ask("m", -3), "member epoch -3 has no meaning"),
    ],
)
def test_requests_that_cant_be(request_, message):
    with pytest.raises(InvalidGroupRequestError, match=message):
        check_heartbeat(request_, ConsumerGroupConfig())


def test_version_0_lets_the_coordinator_choose_the_member_id():
    check_heartbeat(ask("", 0, version=0), ConsumerGroupConfig())


def test_an_assignor_that_is_not_there():
    config = ConsumerGroupConfig.from_properties({"group.consumer.assignors": "range"})
    assert config.default_assignor == "range"
    with pytest.raises(
        UnsupportedAssignorError, match=r"ServerAssignor uniform is not supported\. Supported assignors: range"
    ):
        check_heartbeat(ask("m", 0, server_assignor="uniform"), config)


@pytest.mark.parametrize(
    "properties",
    [
        {"group.consumer.session.timeout.ms": "10000"},
        {"group.consumer.session.timeout.ms": "70000"},
        {"group.consumer.heartbeat.interval.ms": "1000"},
        {"group.consumer.assignors": "sticky"},
        {"group.consumer.migration.policy": "sideways"},
        {"group.coordinator.rebalance.protocols": "classic,share"},
    ],
)
def test_configuration_out_of_its_bounds(properties):
    with pytest.raises(InvalidConfigError, match=next(iter(properties))):
        ConsumerGroupConfig.from_properties(properties)


def test_bounds_may_be_moved():
    config = ConsumerGroupConfig.from_properties(
        {"group.consumer.session.timeout.ms": "500", "group.consumer.min.session.timeout.ms": "100"}
    )
    assert config.group_consumer_session_timeout_ms == 500


def test_a_member_that_subscribes_nothing_is_a_member():
    group = Coordinator()
    assert group.heartbeat("m1", 0, topic_names=frozenset()).member_epoch == 1
    assert group.heartbeat("m1", 1).assignment is None
    assert group.heartbeat("m2", 0, topic_names=None, topic_regex="").member_epoch == 1
