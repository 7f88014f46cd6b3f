"""Carries out the plan of a source's topics, again and again; in the instance that leads the mirror's group.

    look (topic_view) ──► plan (topic_plan) ──► states, in one batch ──► topics, one after the other

Whatever is interrupted is found by the next look. A failure is the topic's own: the topic is stopped with the reason,
and tried again after a minute, or with the next look where the failure is one that passes soon. Where properties can't
be changed, it goes on with those that it has. One that the target does not know or take is left out, and told once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from millrace.client import Admin, Cluster, Configs, ResourceKind, read_log_offsets
from millrace.client.answers import is_retriable
from millrace.client.fetched import IsolationLevel
from millrace.client.mirrored_appends import MIRROR_SOURCE
from millrace.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    MillraceError,
    TopicBeingDeletedError,
    TopicExistsError,
    UnknownTopicError,
)
from millrace_pipelines.mirror.rights import TARGET, needing
from millrace_pipelines.mirror.settings import MirrorSettings, Source
from millrace_pipelines.mirror.states import STATES_TOPIC, States, TopicState
from millrace_pipelines.mirror.topic_plan import (
    Action,
    ChangeProperties,
    Create,
    DeleteTarget,
    Grow,
    LeaveAlone,
    Replace,
    SetState,
    plan,
)
from millrace_pipelines.mirror.topic_view import TopicViews, topic_id_of

logger = logging.getLogger(__name__)

RETRY_S = 60.0
_RIGHTS = {
    Create: "Create",
    Replace: "Create and Delete",
    Grow: "Alter",
    ChangeProperties: "AlterConfigs",
    DeleteTarget: "Delete",
}


class TopicKeeper:
    """Keeps the topics of one source; `keep` makes one pass. It belongs to the thread of its clusters."""

    def __init__(
        self,
        settings: MirrorSettings,
        source: Source,
        at_source: Cluster,
        at_target: Cluster,
        states: States,
        *,
        views: TopicViews | None = None,
    ) -> None:
        self._settings = settings
        self._source = source
        self._at_source = at_source
        self._at_target = at_target
        self._states = states
        self._views = views or TopicViews(settings, source, at_source, at_target, states)
        self._admin = Admin(at_target)
        self._configs = Configs(at_target)
        self._failed_s: dict[str, float] = {}
        self._refused: set[tuple[str, str, str]] = set()

    def keep(self) -> list[Action]:
        """Looks at both clusters, does what is to be done, and returns it.

        Raises MillraceError where a cluster can't be asked, or states can't be written.
        """
        actions = [one for one in plan(self._views.look(), self._source, self._settings) if self._is_due(one)]
        begun = [self._with_starts(one) if isinstance(one, Create) else one for one in actions]
        self._write([one.state for one in begun if isinstance(one, Create | SetState)])
        for one in begun:
            self._try(one)
        return begun

    def _is_due(self, action: Action) -> bool:
        if isinstance(action, LeaveAlone):
            return True
        failed_s = self._failed_s.get(action.state.key)
        return failed_s is None or self._at_target.clock.monotonic_s() >= failed_s + RETRY_S

    def _write(self, states: list[TopicState]) -> None:
        right = f"Write on topic {STATES_TOPIC}"
        if states:
            with needing(TARGET, topic=right, cluster=right):
                self._states.write(*states)

    def _with_starts(self, create: Create) -> Action:
        """Returns the creation with the source's ends, where only what follows counts: also of open transactions."""
        if not create.from_now:
            return create
        topic = create.state.topic
        partitions = [(topic, one) for one in range(create.partitions)]
        logs = read_log_offsets(self._at_source, partitions, IsolationLevel.READ_COMMITTED)
        starts: dict[int, int] = {}
        for (_, partition), log in logs.items():
            if isinstance(log, MillraceError):
                logger.warning("%s: the end of its log can't be had: %s", create.state.key, log)
                return LeaveAlone(create.state.key, f"where it ends at present can't be had: {log}")
            starts[partition] = log.end_offset
        return create._replace(state=replace(create.state, starts=starts))

    def _try(self, action: Action) -> None:
        if isinstance(action, LeaveAlone | SetState):
            return
        state = action.state
        try:
            with needing(TARGET, topic=f"{_RIGHTS[type(action)]} on topic {state.target_topic}"):
                self._do(action)
            self._failed_s.pop(state.key, None)
        except MillraceError as error:
            logger.warning("%s: %s", state.key, error)
            if is_retriable(error):
                return
            self._failed_s[state.key] = self._at_target.clock.monotonic_s()
            if not isinstance(action, ChangeProperties):
                self._states.write(state.stopped(str(error), may_pass=True))

    def _do(self, action: Action) -> None:
        match action:
            case Create(state, partitions, properties):
                self._create(state, partitions, properties)
            case Replace(state, partitions, properties):
                self._replace(state, partitions, properties)
            case Grow(state, partitions):
                self._grow(state.target_topic, partitions)
            case ChangeProperties(state, values, unset):
                self._change(state.target_topic, values, unset)
            case DeleteTarget(state, is_there):
                if is_there:
                    self._delete(state.target_topic)
                self._states.remove(state.key)

    def _create(self, state: TopicState, partitions: int, properties: Mapping[str, str]) -> None:
        """Creates a topic; one that has come to be meanwhile is another instance's work, which the next look sees."""
        try:
            self._create_topic(state.target_topic, partitions, properties)
        except TopicExistsError:
            return
        self._states.write(replace(state, target_topic_id=topic_id_of(self._at_target, state.target_topic)))

    def _replace(self, state: TopicState, partitions: int, properties: Mapping[str, str]) -> None:
        """Deletes a topic, then creates it: interrupted after the state is written, only the creation is left to do."""
        self._delete(state.target_topic)
        self._states.write(state)

        def create() -> None:
            try:
                self._create_topic(state.target_topic, partitions, properties)
            except TopicExistsError as error:  # its deletion is under way
                raise TopicBeingDeletedError(str(error)) from error

        self._at_target.until_it_passes(create)
        self._states.write(replace(state, target_topic_id=topic_id_of(self._at_target, state.target_topic)))

    def _grow(self, topic: str, partitions: int) -> None:
        try:
            self._admin.create_partitions(topic, partitions)
        except InvalidPartitionsError:
            if self._at_target.partition_count(topic) < partitions:
                raise  # else somebody else has done it

    def _delete(self, topic: str) -> None:
        try:
            self._admin.delete_topic(topic)
        except UnknownTopicError:
            return  # somebody else has deleted it

    def _create_topic(self, name: str, partitions: int, properties: Mapping[str, str]) -> None:
        factor = self._settings.replication_factor
        try:
            self._admin.create_topic(name, partitions, factor, properties)
        except InvalidConfigError:
            taken = dict(self._taken_at_creation(name, partitions, properties))
            if taken.keys() == properties.keys() or (MIRROR_SOURCE in properties and MIRROR_SOURCE not in taken):
                raise
            self._admin.create_topic(name, partitions, factor, taken)

    def _taken_at_creation(
        self, name: str, partitions: int, properties: Mapping[str, str]
    ) -> Iterator[tuple[str, str]]:
        for one, value in properties.items():
            try:
                self._admin.create_topic(
                    name, partitions, self._settings.replication_factor, {one: value}, validate_only=True
                )
            except InvalidConfigError as error:
                self._tell(name, one, value, error)
            else:
                yield one, value

    def _change(self, topic: str, values: Mapping[str, str], unset: tuple[str, ...]) -> None:
        wanted = {one: value for one, value in values.items() if (topic, one, value) not in self._refused}
        if not wanted and not unset:
            return
        try:
            self._configs.change(ResourceKind.TOPIC, topic, wanted, unset)
        except InvalidConfigError:
            for one, value in wanted.items():
                self._change_one(topic, one, value)
            if unset:
                self._configs.change(ResourceKind.TOPIC, topic, {}, unset)

    def _change_one(self, topic: str, name: str, value: str) -> None:
        try:
            self._configs.change(ResourceKind.TOPIC, topic, {name: value})
        except InvalidConfigError as error:
            self._tell(topic, name, value, error)

    def _tell(self, topic: str, name: str, value: str, error: MillraceError) -> None:
        if (topic, name, value) not in self._refused:
            logger.warning(
                "topic %s keeps its own %s, since the target does not take %s: %s", topic, name, value, error
            )
        self._refused.add((topic, name, value))
