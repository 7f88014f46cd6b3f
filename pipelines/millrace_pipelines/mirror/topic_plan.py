"""What is to be done so that the topics of a source are at the target as they are there: a pure function.

    the topic at the source    its state    at the target             what is done
    new                        none         missing                   created, or left alone
                               none         there                     stopped; taken up where it was followed
    comes from here            any          any                       left alone (`naming`)
    as it was                  mirrored     as it was                 partitions and properties follow
                               mirrored     more partitions           stopped
                               mirrored     deleted, or another one   stopped
                               creating     missing, or there         created, or taken up: somebody was interrupted
    deleted and created again  mirrored     any                       stopped, unless that is accepted
    deleted                    mirrored     as it was                 stopped and kept, or deleted (`deleted_topics`)
    can't be seen              mirrored     any                       left alone: it may be there
    no longer asked for        mirrored     any                       stopped
    any                        paused, or switched over               left alone
    any                        stopped by a log, or for good          left alone, until somebody resumes it

A state is written before its topic is created, so that no other cluster takes the topic for one that was made there. A
stop that may pass is judged again each time.

Accepted is a topic that was deleted and created again in two ways. Copied, its records come behind those of the former
one. Followed, the topic at the target is deleted and created again as well, since its offsets are those of the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from millrace.client.mirrored_appends import MIRROR_SOURCE
from millrace_pipelines.mirror.naming import is_internal, mirror_at, name_fault, origins_of, taken_by, target_name
from millrace_pipelines.mirror.settings import Accept, DeletedTopics, MirrorSettings, NewTopics, Source, Way
from millrace_pipelines.mirror.states import State, TopicState

OF_TIMES = frozenset(
    {
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
    }
)
LEFT_ALONE = {
    State.PAUSED: "it is paused",
    State.SWITCHING: "it is being switched over",
    State.SWITCHED: "it was switched over",
}


class Topic(NamedTuple):
    """A topic as its cluster has it; `properties` are those that are set for this topic alone."""

    name: str
    topic_id: str | None
    partitions: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a plan is made of.

    Attributes:
        source_cluster_id: The source cluster.
        target_cluster_id: The target cluster.
        source_topics: The topics of the source, by name, listed before its states were read.
        gone: Topics of which the source says that there is none; one that is in neither can't be seen at present.
        target_topics: Those of the target that matter.
        states: The states of mirrored topics in the target, of all sources.
        source_states: Those in the source, of topics that are mirrored into it.
        can_follow: Whether the target can be followed into.
        denied: Topics of the source that the mirror may not see, or not their properties, with what it lacks.
    """

    source_cluster_id: str
    target_cluster_id: str
    source_topics: Mapping[str, Topic]
    gone: frozenset[str]
    target_topics: Mapping[str, Topic]
    states: Mapping[str, TopicState]
    source_states: Mapping[str, TopicState]
    can_follow: bool
    denied: Mapping[str, str] = field(default_factory=dict)


class Create(NamedTuple):
    """The topic is created at the target; with `from_now`, records that the source has already are left out."""

    state: TopicState
    partitions: int
    properties: Mapping[str, str]
    from_now: bool = False


class Replace(NamedTuple):
    """The topic is deleted at the target, and created again."""

    state: TopicState
    partitions: int
    properties: Mapping[str, str]


class Grow(NamedTuple):
    """The topic gets as many partitions at the target as it has at the source."""

    state: TopicState
    partitions: int


class ChangeProperties(NamedTuple):
    """Properties of the topic are set at the target, and those in `unset` reset."""

    state: TopicState
    values: Mapping[str, str]
    unset: tuple[str, ...]


class SetState(NamedTuple):
    """The topic's state is written."""

    state: TopicState


class DeleteTarget(NamedTuple):
    """The topic is deleted at the target, if it is there as the mirror made it, and its state removed."""

    state: TopicState
    is_there: bool


class LeaveAlone(NamedTuple):
    """Nothing is done about a topic, by the key of its state, and why."""

    key: str
    reason: str


Action: TypeAlias = Create | Replace | Grow | ChangeProperties | SetState | DeleteTarget | LeaveAlone


def plan(view: View, source: Source, settings: MirrorSettings) -> list[Action]:
    """Returns what is to be done for the topics of a source, by their names; nothing for one that is as it should."""
    planner = _Planner(view, source, settings)
    wanted = {name for name in view.source_topics if source.has_topic(name) and not is_internal(name)}
    known = {one.topic for one in view.states.values() if one.source == source.name}
    actions: list[Action] = []
    for name in sorted(wanted | known | view.denied.keys()):
        if name in view.denied:
            actions += planner.of_denied(name)
        else:
            actions += planner.of_wanted(view.source_topics[name]) if name in wanted else planner.of_left(name)
    return actions


class _Planner:
    def __init__(self, view: View, source: Source, settings: MirrorSettings) -> None:
        self._view = view
        self._source = source
        self._settings = settings
        self._is_first = all(one.source != source.name for one in view.states.values())

    def of_wanted(self, topic: Topic) -> Iterator[Action]:
        """Yields what is to be done for a topic that is at the source, and asked for."""
        state = self._view.states.get(f"{self._source.name}/{topic.name}")
        mirror = mirror_at(self._view.source_states.values(), topic.name, topic.topic_id)
        origins = origins_of(self._view.source_cluster_id, mirror)
        if state is not None and state.state in LEFT_ALONE:
            yield LeaveAlone(state.key, LEFT_ALONE[state.state])
        elif self._view.target_cluster_id in origins:
            said = f"topic {topic.name} comes from here: its records were mirrored out of the target cluster"
            yield from [LeaveAlone(self._key(topic), said)] if state is None else _stopped(state, said)
        elif state is None:
            yield from self._new(topic, self._first_state(topic, origins))
        elif (reason := _resting(state)) is not None:
            yield LeaveAlone(state.key, reason)
        else:
            yield from self._known(topic, state, origins)

    def of_left(self, name: str) -> Iterator[Action]:
        """Yields what is to be done for a topic that has a state, and is not at the source or not asked for."""
        state = self._view.states[f"{self._source.name}/{name}"]
        if (reason := _resting(state)) is not None:
            yield LeaveAlone(state.key, reason)
        elif name in self._view.source_topics:
            yield from _stopped(state, f"topic {name} is no longer among the topics that are asked for")
        elif name not in self._view.gone:
            yield LeaveAlone(state.key, f"topic {name} can't be seen at the source at present")
        elif self._settings.deleted_topics is DeletedTopics.DELETE:
            found = self._view.target_topics.get(state.target_topic)
            yield DeleteTarget(state, is_there=found is not None and found.topic_id == state.target_topic_id)
        else:
            yield from _stopped(
                state,
                f"topic {name} was deleted at the source; {state.target_topic} keeps what was mirrored "
                "(deleted_topics = delete deletes it, too)",
            )

    def of_denied(self, name: str) -> Iterator[Action]:
        """Yields what is to be done for a topic that the mirror may not see: it is not begun, but goes on."""
        state = self._view.states.get(f"{self._source.name}/{name}")
        if state is None:
            state = self._first_state(Topic(name, None, 0, {}), ())
        reason = self._view.denied[name]
        is_begun = state.target_topic_id is not None or _resting(state) is not None
        yield from [LeaveAlone(state.key, reason)] if is_begun else _stopped(state, reason)

    def _key(self, topic: Topic) -> str:
        return f"{self._source.name}/{topic.name}"

    def _first_state(self, topic: Topic, origins: tuple[str, ...]) -> TopicState:
        follows = self._settings.way is Way.FOLLOW or (self._settings.way is Way.AUTO and self._view.can_follow)
        return TopicState(
            source=self._source.name,
            topic=topic.name,
            target_topic=target_name(self._source.name, topic.name, keep_names=self._settings.keep_names),
            way=Way.FOLLOW if follows else Way.COPY,
            source_cluster_id=self._view.source_cluster_id,
            source_topic_id=topic.topic_id,
            origins=origins,
        )

    def _new(self, topic: Topic, state: TopicState) -> Iterator[Action]:
        found = self._view.target_topics.get(state.target_topic)
        if found is not None and found.properties.get(MIRROR_SOURCE) == self._source.name and state.way is Way.FOLLOW:
            yield SetState(replace(state, target_topic_id=found.topic_id))
        elif self._settings.new_topics is NewTopics.NO and not self._is_first:
            yield LeaveAlone(state.key, f"topic {topic.name} is new, and new topics are not mirrored (new_topics = no)")
        elif (fault := self._fault(state, found)) is not None:
            yield from _stopped(state, fault)
        else:
            yield self._created(topic, state)

    def _fault(self, state: TopicState, found: Topic | None) -> str | None:
        """Returns what keeps a topic from being created."""
        if (fault := name_fault(state.target_topic)) is not None:
            return fault
        if (other := taken_by(self._view.states, state.key, state.target_topic)) is not None:
            return (
                f"{state.target_topic} is at the target already, mirrored from {other.source}; mirror without "
                "--keep-names, or leave the topic out of one source"
            )
        if state.way is Way.FOLLOW and not self._view.can_follow:
            return "the target can't be followed into: it is no Millrace of this version; mirror with way = copy"
        if found is not None:
            return (
                f"topic {state.target_topic} is at the target already and is no mirror of {state.key}; delete it "
                "there, or leave the topic out (topics_exclude)"
            )
        return None

    def _created(self, topic: Topic, state: TopicState) -> Action:
        from_now = self._settings.new_topics is NewTopics.NOW and not self._is_resumed(state)
        return Create(state, topic.partitions, self._properties(topic, state), from_now=from_now)

    def _is_resumed(self, state: TopicState) -> bool:
        known = self._view.states.get(state.key)
        return known is not None and known.state is State.MIRRORING

    def _known(self, topic: Topic, state: TopicState, origins: tuple[str, ...]) -> Iterator[Action]:
        found = self._view.target_topics.get(state.target_topic)
        mirrored = replace(state.resumed(), origins=origins, source_topic_id=topic.topic_id or state.source_topic_id)
        is_other = topic.topic_id is not None and state.source_topic_id not in (None, topic.topic_id)
        if is_other and state.target_topic_id is not None:
            yield from self._recreated(topic, state, mirrored)
        elif found is None and state.target_topic_id is None:
            fault = self._fault(state, None)
            begun = replace(mirrored, starts={}) if is_other else mirrored
            yield from _stopped(state, fault) if fault is not None else [self._created(topic, begun)]
        elif found is None:
            yield SetState(replace(state, target_topic_id=None).stopped(_deleted_at_target(state)))
        elif state.target_topic_id is None and state.state is State.STOPPED:
            yield from _stopped(state, self._fault(state, found) or "")
        elif state.target_topic_id not in (None, found.topic_id):
            yield from _stopped(state, _another_at_target(state))
        elif found.partitions > topic.partitions:
            yield from _stopped(state, _too_many_partitions(state, found.partitions, topic.partitions))
        else:
            yield from self._in_order(topic, found, state, replace(mirrored, target_topic_id=found.topic_id))

    def _recreated(self, topic: Topic, state: TopicState, mirrored: TopicState) -> Iterator[Action]:
        if Accept.RECREATED_TOPIC not in self._settings.accepted | state.accepted:
            yield from _stopped(state, _recreated(state, topic.topic_id or ""))
            return
        renewed = replace(mirrored, starts={}, accepted=state.accepted - {Accept.RECREATED_TOPIC})
        if state.way is Way.COPY:
            yield SetState(renewed)
        else:
            yield Replace(replace(renewed, target_topic_id=None), topic.partitions, self._properties(topic, state))

    def _in_order(self, topic: Topic, found: Topic, state: TopicState, mirrored: TopicState) -> Iterator[Action]:
        if mirrored != state:
            yield SetState(mirrored)
        if found.partitions < topic.partitions:
            yield Grow(mirrored, topic.partitions)
        wanted = self._properties(topic, state)
        values = {name: value for name, value in wanted.items() if found.properties.get(name) != value}
        unset = tuple(name for name in found.properties if name not in wanted and self._goes_along(name, state))
        if values or unset:
            yield ChangeProperties(mirrored, values, unset)

    def _properties(self, topic: Topic, state: TopicState) -> dict[str, str]:
        found = {name: value for name, value in topic.properties.items() if self._goes_along(name, state)}
        return found | ({MIRROR_SOURCE: self._source.name} if state.way is Way.FOLLOW else {})

    def _goes_along(self, name: str, state: TopicState) -> bool:
        is_of_copies = state.way is Way.COPY and name in OF_TIMES
        return name != MIRROR_SOURCE and not is_of_copies and self._settings.goes_along(name)


def _resting(state: TopicState) -> str | None:
    """Returns why a topic in this state is left alone; None where it is mirrored, or its stop may have passed."""
    if state.state is State.STOPPED and not state.may_pass:
        return state.reason
    return LEFT_ALONE.get(state.state)


def _stopped(state: TopicState, reason: str) -> list[Action]:
    stopped = state.stopped(reason, may_pass=True)
    return [LeaveAlone(state.key, reason)] if stopped == state else [SetState(stopped)]


def _recreated(state: TopicState, topic_id: str) -> str:
    goes_on = (
        "its records come behind those that the target has"
        if state.way is Way.COPY
        else f"{state.target_topic} is deleted at the target, and created again"
    )
    return (
        f"topic {state.topic} was deleted and created again at the source since it was mirrored: its id is {topic_id}, "
        f"and was {state.source_topic_id}; whatever the old topic had beyond what was mirrored is lost. A mirror with "
        f"{Accept.RECREATED_TOPIC.flag} goes on with the new topic, and {goes_on}"
    )


def _deleted_at_target(state: TopicState) -> str:
    return (
        f"topic {state.target_topic} was deleted at the target; once it is resumed, it is created again, and mirrored "
        "from the beginning"
    )


def _another_at_target(state: TopicState) -> str:
    return (
        f"topic {state.target_topic} at the target is not the one that the mirror has made: it was deleted and created "
        "again; delete it there"
    )


def _too_many_partitions(state: TopicState, target: int, source: int) -> str:
    return (
        f"topic {state.target_topic} has {target} partitions at the target, and {source} at the source; no topic can "
        "have fewer again: add partitions at the source, or delete the topic at the target"
    )
