"""What holds of every assignment of partitions to the streams of a group (docs/consumer-groups.md)."""

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from millrace.client.consumer.assignment import Partition, assign_range, assign_roundrobin

TOPICS = ("a", "b", "c")
MEMBERS = st.sampled_from([f"m{number}" for number in range(6)])
BROKERS = st.dictionaries(st.sampled_from(TOPICS), st.lists(st.integers(1, 4), max_size=12))
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3))
GROUPS = st.dictionaries(MEMBERS, COUNTS, max_size=6)


@given(GROUPS, BROKERS, st.sampled_from([assign_range, assign_roundrobin]), st.randoms())
def test_each_partition_has_one_owner_who_subscribes_it_and_all_members_agree(group, brokers, assign, random):
    assignment = assign(group, brokers)
    subscribed = {topic for topics in group.values() for topic in topics}
    assert set(assignment) == {
        Partition(topic, number) for topic in subscribed for number in range(len(brokers.get(topic, ())))
    }
    for partition, thread in assignment.items():
        assert thread.number < group[thread.member][partition.topic]
    shuffled = list(group.items())
    random.shuffle(shuffled)
    assert assign(dict(shuffled), brokers) == assignment


@given(GROUPS, BROKERS)
def test_range_spreads_each_topic_evenly_over_few_brokers(group, brokers):
    assignment = assign_range(group, brokers)
    for topic, homes in brokers.items():
        threads = [(member, number) for member, topics in group.items() for number in range(topics.get(topic, 0))]
        owned = Counter(dict.fromkeys(threads, 0))
        met = defaultdict(set)
        for partition, thread in assignment.items():
            if partition.topic == topic:
                owned[tuple(thread)] += 1
                met[thread].add(homes[partition.number])
        if threads:
            assert max(owned.values()) - min(owned.values()) <= 1
            # Side by side: cutting the brokers' runs into pieces makes one more at each cut, and no other.
            assert sum(map(len, met.values())) <= len(set(homes)) + len(met)


@given(st.dictionaries(MEMBERS, st.integers(1, 3), min_size=1), BROKERS)
def test_roundrobin_spreads_all_topics_evenly_where_all_subscribe_the_same(counts, brokers):
    group = {member: dict.fromkeys(TOPICS, count) for member, count in counts.items()}
    owned = Counter({(member, number): 0 for member, count in counts.items() for number in range(count)})
    owned.update(tuple(thread) for thread in assign_roundrobin(group, brokers).values())
    assert max(owned.values()) - min(owned.values()) <= 1
