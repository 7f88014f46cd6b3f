"""Looks at both clusters for a plan of topics: which topics there are, their partitions and properties, their states.

What can't be seen is not taken for missing: a topic whose properties aren't told is left out of this look. What
surprises is believed when it is seen twice: a mirrored topic that is gone, at either side, or is another one. For much
follows from it, and a broker that has just started, or lags behind, may not know better.

The source's topics are listed before its states are read. Since a state is written before its topic is created, each
topic of the list that is a mirror has one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from millrace.client import Cluster, Configs
from millrace.client.metadata import ClusterMetadata
from millrace.client.mirrored_appends import ASKED_PREFIX, can_be_followed_into
from millrace.errors import BrokerError, BrokerUnreachableError, ErrorCode, MillraceError
from millrace_pipelines.mirror.naming import is_internal, name_fault, target_name
from millrace_pipelines.mirror.rights import TARGET, explained, hidden, needing, side_of
from millrace_pipelines.mirror.settings import MirrorSettings, Source
from millrace_pipelines.mirror.states import STATES_TOPIC, States, TopicState
from millrace_pipelines.mirror.topic_plan import Topic, View

logger = logging.getLogger(__name__)

TOPICS_PER_REQUEST = 100
Surprise = tuple[str, str]  # a topic, and what it is unexpectedly
OF_TOPIC = "topic"  # the source of a property that is set for the topic itself


class TopicViews:
    """Makes views of one source's topics, one after the other; it belongs to the thread of its clusters.

    Args:
        settings: Those of the mirror.
        source: The source, one of the settings'.
        at_source: The source cluster.
        at_target: The target cluster.
        states: The states in the target.
        can_follow: Returns whether the target can be followed into; asked once.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        source: Source,
        at_source: Cluster,
        at_target: Cluster,
        states: States,
        *,
        can_follow: Callable[[Cluster], bool] = can_be_followed_into,
    ) -> None:
        self._settings = settings
        self._source = source
        self._at_source = at_source
        self._at_target = at_target
        self._states = states
        self._source_states = States(at_source)
        self._ask_can_follow = can_follow
        self._can_follow: bool | None = None
        self._surprises: frozenset[Surprise] = frozenset()
        self._is_told = False
        self._denials: dict[tuple[str, str], str] = {}

    def look(self) -> View:
        """Returns a view of both clusters; raises MillraceError where one of them can't be asked."""
        listed = self._at_source.metadata()
        names = [one for one, topic in listed.topics.items() if self._is_wanted(one) and not topic.error_code]
        with needing(TARGET, topic=f"Read on topic {STATES_TOPIC}"):
            states = self._states.read()
        known = {one.topic: one for one in states.values() if one.source == self._source.name}
        left_out = [one for one in known if one in listed.topics and one not in names]
        source_topics = self._topics(self._at_source, self._side, listed, names)
        source_topics |= {one: _bare(listed, one) for one in left_out if not listed.topics[one].error_code}
        gone, unseen_here = self._unlisted(known, listed)
        not_told = {one: why for one in names if (why := self._denials.get((self._side, one))) is not None}
        targets = {one: self._target_of(one, known.get(one)) for one in {*source_topics, *known}}
        found, unseen = self._targets(targets.values())
        unsure = self._unsure(_surprises(known, source_topics, gone, found))
        unsure |= {one for one, target in targets.items() if target in unseen}
        return View(
            source_cluster_id=listed.cluster_id or "",
            target_cluster_id=self._at_target.metadata([]).cluster_id or "",
            source_topics={one: topic for one, topic in source_topics.items() if one not in unsure},
            gone=gone - unsure,
            target_topics=found,
            states=states,
            source_states=self._states_of_source(),
            can_follow=self._follows(),
            denied={**unseen_here, **not_told},
        )

    def _follows(self) -> bool:
        if self._can_follow is None:
            with needing(TARGET, topic=f"Create on topics that begin with {ASKED_PREFIX}"):
                self._can_follow = self._ask_can_follow(self._at_target)
        return self._can_follow

    @property
    def _side(self) -> str:
        return side_of(self._source.name)

    def _unsure(self, surprises: frozenset[Surprise]) -> set[str]:
        """Returns the topics that are seen in this way for the first time."""
        before, self._surprises = self._surprises, surprises
        return {topic for topic, _ in surprises - before}

    def _is_wanted(self, topic: str) -> bool:
        return self._source.has_topic(topic) and not is_internal(topic)

    def _target_of(self, topic: str, state: TopicState | None) -> str:
        if state is not None:
            return state.target_topic
        return target_name(self._source.name, topic, keep_names=self._settings.keep_names)

    def _unlisted(self, known: Collection[str], listed: ClusterMetadata) -> tuple[frozenset[str], Mapping[str, str]]:
        """Returns which topics the source says not to have, when it is asked by name, and which it does not show."""
        unlisted = sorted({*known, *self._source.named_topics()} - listed.topics.keys())
        if not unlisted:
            return frozenset(), {}
        asked = self._at_source.metadata(unlisted)
        errors = {one: error for one in unlisted if (error := hidden(asked, one, self._side)) is not None}
        denied = {one: self._deny(self._side, one, error) for one, error in errors.items()}
        return _absent(asked, [one for one in unlisted if one in known]), denied

    def _targets(self, names: Iterable[str]) -> tuple[dict[str, Topic], frozenset[str]]:
        """Returns the topics that are at the target, and the names of which that is not known."""
        possible = sorted({one for one in names if name_fault(one) is None})
        asked = self._at_target.metadata(possible)
        missing = _absent(asked, possible)
        for one in possible:
            if (error := hidden(asked, one, TARGET)) is not None:
                self._deny(TARGET, one, error)
        there = [one for one in possible if one not in missing and not asked.topics[one].error_code]
        found = self._topics(self._at_target, TARGET, asked, there)
        return found, frozenset(possible) - missing - found.keys()

    def _topics(self, cluster: Cluster, side: str, listed: ClusterMetadata, names: Sequence[str]) -> dict[str, Topic]:
        """Returns the topics with their properties, without those whose properties can't be had."""
        found = {}
        for first in range(0, len(names), TOPICS_PER_REQUEST):
            few = names[first : first + TOPICS_PER_REQUEST]
            described = properties_of(
                Configs(cluster), few, lambda name, error: self._deny_properties(side, name, error)
            )
            for name, properties in described.items():
                found[name] = _bare(listed, name)._replace(properties=properties)
                self._denials.pop((side, name), None)
        return found

    def _deny_properties(self, side: str, topic: str, error: MillraceError) -> None:
        self._deny(side, topic, explained(error, side, topic=f"DescribeConfigs on topic {topic}"))

    def _deny(self, side: str, topic: str, error: MillraceError) -> str:
        """Takes that a topic, or its properties, can't be seen; returns why, and logs it once."""
        said = str(error)
        if self._denials.get((side, topic)) != said:
            logger.warning("topic %s can't be seen: %s", topic, said)
        self._denials[side, topic] = said
        return said

    def _states_of_source(self) -> Mapping[str, TopicState]:
        try:
            return self._source_states.read()
        except BrokerError as error:
            if error.broker_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            if not self._is_told:
                logger.warning(
                    "topics which come from the target are not known as such: %s",
                    explained(error, self._side, topic=f"Read on topic {STATES_TOPIC}"),
                )
            self._is_told = True
            return {}


def topic_id_of(cluster: Cluster, name: str) -> str | None:
    """Returns a topic's id, None where the cluster gives none; raises UnknownTopicError."""
    topic_id = cluster.metadata([name]).topic(name).topic_id
    return None if topic_id is None else str(topic_id)


def _surprises(
    known: Mapping[str, TopicState],
    source_topics: Mapping[str, Topic],
    gone: frozenset[str],
    target_topics: Mapping[str, Topic],
) -> frozenset[Surprise]:
    """Returns what is otherwise than the states of topics say that were created at the target."""
    found = set()
    for topic, state in known.items():
        at_source, at_target = source_topics.get(topic), target_topics.get(state.target_topic)
        if state.target_topic_id is None:
            continue
        if topic in gone:
            found.add((topic, "gone"))
        if at_source is not None and at_source.topic_id != state.source_topic_id:
            found.add((topic, f"source {at_source.topic_id}"))
        if at_target is None or at_target.topic_id != state.target_topic_id:
            found.add((topic, f"target {at_target and at_target.topic_id}"))
    return frozenset(found)


def _absent(asked: ClusterMetadata, names: Iterable[str]) -> frozenset[str]:
    return frozenset(one for one in names if asked.lacks([one]))


def _bare(listed: ClusterMetadata, name: str) -> Topic:
    found = listed.topics[name]
    return Topic(name, None if found.topic_id is None else str(found.topic_id), len(found.partitions), {})


def properties_of(
    configs: Configs, names: Sequence[str], deny: Callable[[str, MillraceError], object]
) -> dict[str, dict[str, str]]:
    """Returns the own properties of topics; of one that does not tell them, `deny` gets the name and the error.

    Raises BrokerUnreachableError.
    """
    try:
        described = configs.describe_topics(names)
    except BrokerUnreachableError:
        raise  # it is no fault of a topic
    except MillraceError as error:
        if len(names) == 1:
            deny(names[0], error)
            return {}
        return {name: told for one in names for name, told in properties_of(configs, [one], deny).items()}
    return {
        topic: {
            name: one.value for name, one in properties.items() if one.source == OF_TOPIC and one.value is not None
        }
        for topic, properties in described.items()
    }  # fmt: skip
