"""Server-side assignors: everything given out once, to readers only, evenly, and as before where that is possible."""

from collections import Counter
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.groups.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec

TOPICS = [UUID(int=number) for number in range(1, 6)]
MEMBERS = [f"member-{number}" for number in range(8)]


@st.composite
def groups(draw, *, same_topics, largest=9, most_members=8):
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, largest), min_size=1))
    members = draw(st.lists(st.sampled_from(MEMBERS[:most_members]), min_size=1, unique=True))
    subscription = st.frozensets(st.sampled_from(sorted(counts)), min_size=1)
    common = frozenset(counts)
    read = {member_id: common if same_topics else draw(subscription) for member_id in members}
    counts = {topic_id: count for topic_id, count in counts.items() if any(topic_id in one for one in read.values())}
    current = {member_id: set() for member_id in members}
    for one in GroupSpec({}, counts).partitions():
        holder = draw(st.sampled_from([*members, None]))
        if holder is not None:
            current[holder].add(one)
    return GroupSpec(
        {member_id: MemberSpec(None, read[member_id], frozenset(current[member_id])) for member_id in members}, counts
    )


def with_current(group, assignment):
    members = {
        member_id: MemberSpec(member.instance_id, member.topic_ids, assignment[member_id])
        for member_id, member in group.members.items()
    }
    return GroupSpec(members, group.partition_counts)


def loads(assignment):
    return sorted(len(share) for share in assignment.values())


def assert_given_out_once(group, assignment):
    assert assignment.keys() == group.members.keys()
    given_out = Counter(one for share in assignment.values() for one in share)
    assert given_out == Counter(group.partitions())
    for member_id, share in assignment.items():
        assert {one.topic_id for one in share} <= group.members[member_id].topic_ids


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(st.booleans().flatmap(lambda same: groups(same_topics=same)))
def test_each_partition_goes_to_one_reader(name, group):
    assert_given_out_once(group, ASSIGNORS[name](group))


@given(groups(same_topics=True))
def test_uniform_shares_differ_by_one_at_most(group):
    shares = loads(ASSIGNORS["uniform"](group))
    assert shares[-1] - shares[0] <= 1


@given(groups(same_topics=True))
def test_uniform_moves_no_more_than_evenness_asks_for(group):
    """A member keeps all it had up to its share; the longer shares are with those that had most."""
    assignment = ASSIGNORS["uniform"](group)
    shortest, longer = divmod(sum(group.partition_counts.values()), len(group.members))
    had = sorted((len(member.current) for member in group.members.values()), reverse=True)
    could_stay = sum(min(count, shortest + (place < longer)) for place, count in enumerate(had))
    stayed = sum(len(share & group.members[member_id].current) for member_id, share in assignment.items())
    assert stayed == could_stay


@given(st.booleans().flatmap(lambda same: groups(same_topics=same)))
def test_uniform_leaves_alone_what_is_even(group):
    assignment = ASSIGNORS["uniform"](group)
    assert ASSIGNORS["uniform"](with_current(group, assignment)) == assignment


@settings(max_examples=60)
@given(groups(same_topics=False, largest=2, most_members=3))
def test_uniform_is_as_even_as_subscriptions_allow(group):
    partitions = list(group.partitions())[:7]
    counts = Counter(one.topic_id for one in partitions)
    small = GroupSpec(group.members, dict(counts))
    readers = [
        [member_id for member_id, member in group.members.items() if one.topic_id in member.topic_ids]
        for one in partitions
    ]
    best = min(sum(count**2 for count in Counter(choice).values()) for choice in product(*readers))
    assert sum(count**2 for count in loads(ASSIGNORS["uniform"](small))) == best


@given(st.booleans().flatmap(lambda same: groups(same_topics=same)))
def test_range_gives_each_reader_one_run_of_a_topic(group):
    assignment = ASSIGNORS["range"](group)
    for topic_id, count in group.partition_counts.items():
        runs = [
            sorted(one.partition for one in assignment[member_id] if one.topic_id == topic_id)
            for member_id in sorted(group.members)
            if topic_id in group.members[member_id].topic_ids
        ]
        assert [index for run in runs for index in run] == list(range(count))
        assert max(map(len, runs)) - min(map(len, runs)) <= 1


def test_range_cuts_equal_topics_at_the_same_places():
    topics = frozenset(TOPICS[:2])
    group = GroupSpec({name: MemberSpec(None, topics, frozenset()) for name in "ab"}, dict.fromkeys(topics, 3))
    assignment = ASSIGNORS["range"](group)
    assert assignment["a"] == {TopicIdPartition(topic_id, index) for topic_id in topics for index in (0, 1)}


def test_range_puts_static_members_first():
    """They keep their place under another member id."""
    topics = frozenset(TOPICS[:1])
    members = {
        "zz": MemberSpec("instance-1", topics, frozenset()),
        "aa": MemberSpec("instance-2", topics, frozenset()),
        "a": MemberSpec(None, topics, frozenset()),
    }
    assignment = ASSIGNORS["range"](GroupSpec(members, {TOPICS[0]: 3}))
    assert {name: min(share).partition for name, share in assignment.items()} == {"zz": 0, "aa": 1, "a": 2}


def test_uniform_is_quick_for_a_large_group_of_different_subscriptions():
    """A hundred members, a thousand partitions, each topic read by a third: done, and even."""
    topics = [UUID(int=number) for number in range(1, 101)]
    members = {
        f"m{number:03}": MemberSpec(None, frozenset(topics[number % 3 :: 3]), frozenset()) for number in range(99)
    }
    assignment = ASSIGNORS["uniform"](GroupSpec(members, dict.fromkeys(topics, 10)))
    shares = loads(assignment)
    assert shares[-1] - shares[0] <= 1
