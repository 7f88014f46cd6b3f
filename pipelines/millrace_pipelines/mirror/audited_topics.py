"""Which topics of a source are audited, and how each is mirrored: what the target's `__mirror_states` says of them.

A topic without a state, as one that another tool has brought, is taken for a copy of the topic that has its name.
"""

from __future__ import annotations

from millrace.client import Admin, Cluster
from millrace.errors import UnknownTopicError
from millrace_pipelines.mirror.audit import MirroredTopic
from millrace_pipelines.mirror.naming import is_internal, target_name
from millrace_pipelines.mirror.settings import Source, Way
from millrace_pipelines.mirror.states import State, States, TopicState


def audited_topics(source: Source, at_source: Cluster, target: Cluster, *, keep_names: bool) -> list[MirroredTopic]:
    """Returns the topics of a source that the target has, by name; raises UnknownTopicError if there is none.

    A topic that has a state is among them even if either side lacks it: that is a difference.
    """
    states = {one.topic: one for one in States(target).read().values() if one.source == source.name}
    there, here = Admin(at_source).topics(), Admin(target).topics()
    names = {one for one in {*there, *states} if source.has_topic(one) and not is_internal(one)}
    found = [
        _topic(source, name, states.get(name), keep_names=keep_names)
        for name in sorted(names)
        if name in states or target_name(source.name, name, keep_names=keep_names) in here
    ]
    if not found:
        raise UnknownTopicError(
            f"{source.name} has no topic that is asked for and that the target has too; with --keep-names they are "
            "looked for there by the names that they have at the source"
        )
    return found


def _topic(source: Source, name: str, state: TopicState | None, *, keep_names: bool) -> MirroredTopic:
    if state is None:
        return MirroredTopic(source=name, target=target_name(source.name, name, keep_names=keep_names))
    return MirroredTopic(
        source=name,
        target=state.target_topic,
        follows=state.way is Way.FOLLOW,
        has_ended=state.state is State.SWITCHED,
        starts=state.starts,
    )
