"""The target assignment of a group, which its assignor makes of its subscriptions."""

from __future__ import annotations

from collections.abc import Mapping

from millrace_broker.cluster.view import TopicInfo
from millrace_broker.groups.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec
from millrace_broker.groups.consumer.member import NOTHING, Assignment, Member
from millrace_broker.groups.consumer.state import GroupState


def new_targets(state: GroupState, topics: Mapping[str, TopicInfo], assignor: str) -> dict[str, Assignment]:
    """Returns the target of each member, out of those topics that exist."""
    read = [topics[name] for name in state.topic_names() & topics.keys()]
    group = GroupSpec(
        members={member_id: _spec(state, member, topics) for member_id, member in state.members.items()},
        partition_counts={topic.topic_id: len(topic.partitions) for topic in read},
    )
    return ASSIGNORS[assignor](group)


def _spec(state: GroupState, member: Member, topics: Mapping[str, TopicInfo]) -> MemberSpec:
    names = state.topics_of(member.metadata) & topics.keys()
    return MemberSpec(
        instance_id=member.metadata.instance_id,
        topic_ids=frozenset(topics[name].topic_id for name in names),
        current=state.targets.get(member.member_id, NOTHING),
    )
