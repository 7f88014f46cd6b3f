"""What mirrored topics are called, and which topics are never mirrored.

    NAME.topic      by default; NAME is the source cluster's, which has no dot: so two sources never meet in a name
    topic           with keep_names; of several sources with a topic of this name, the first one to be mirrored has it
    _schemas        the topic of a schema registry always keeps its name: a registry reads one topic, by its own name.
                    It is mirrored where it is among the topics asked for, and where it is followed, the registry at
                    the target is read-only as the topic is

Topics in which a cluster, a mirror or MirrorMaker 2 keeps its own state are left out.

A record comes home never: a mirrored topic has origins, the ids of the clusters through which its records came. A topic
that came through the target cluster is not mirrored into it, in a pair of clusters as in a ring of any length. The
origins stand in the states of the cluster that has the topic (`states`). A topic that was switched over has records of
its own, and is an origin itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from millrace_pipelines.mirror.settings import matches
from millrace_pipelines.mirror.states import State, TopicState

SCHEMAS_TOPIC = "_schemas"
MAX_NAME_CHARACTERS = 249
LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
INTERNAL = ("__.*", ".*\\.internal", "(.*\\.)?heartbeats")


def target_name(source: str, topic: str, *, keep_names: bool) -> str:
    """Returns what a topic of a source cluster is called at the target."""
    return topic if keep_names or topic == SCHEMAS_TOPIC else f"{source}.{topic}"


def name_fault(name: str) -> str | None:
    """Returns what makes a name impossible for a topic, with the way on; None for a possible one."""
    if len(name) > MAX_NAME_CHARACTERS:
        return (
            f"{name} has {len(name)} characters, and a topic's name {MAX_NAME_CHARACTERS} at most; give the source a "
            "shorter name, or mirror with --keep-names"
        )
    return None if LEGAL.fullmatch(name) and name not in (".", "..") else f"{name!r} is no name of a topic"


def is_internal(topic: str) -> bool:
    """Returns whether a topic is the state of a cluster, a mirror or MirrorMaker 2, which is never mirrored."""
    return matches(INTERNAL, topic)


def mirror_at(states: Iterable[TopicState], topic: str, topic_id: str | None) -> TopicState | None:
    """Returns the state of the mirror that writes a topic, by the states of the topic's own cluster; None for none."""
    for one in states:
        is_begun = one.target_topic_id == topic_id or (one.target_topic_id is None and one.state is State.MIRRORING)
        if one.target_topic == topic and is_begun and one.state is not State.SWITCHED:
            return one
    return None


def origins_of(source_cluster_id: str, mirror: TopicState | None) -> tuple[str, ...]:
    """Returns the clusters through which records of a topic come, nearest first; `mirror` writes it at the source."""
    return (source_cluster_id, *(mirror.origins if mirror is not None else ()))


def taken_by(states: Mapping[str, TopicState], key: str, name: str) -> TopicState | None:
    """Returns the state of another mirrored topic that has this name at the target; None where the name is free."""
    for other, state in states.items():
        if other != key and state.target_topic == name and state.state is not State.STOPPED:
            return state
    return None
