"""What the leader of a source's group keeps for all instances: topics, and the offsets of groups.

Groups are moved after topics, which they need, and more often. What fails for one group stops no other.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from typing import Self

from millrace.client import Cluster
from millrace.client.consumer.group_offsets import open_session
from millrace.errors import MillraceError
from millrace_pipelines.mirror.group_side import GroupSide
from millrace_pipelines.mirror.groups import GroupMoves, Outcome
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source
from millrace_pipelines.mirror.states import State, States
from millrace_pipelines.mirror.topic_keeper import TopicKeeper
from millrace_pipelines.mirror.translation import mirrored_topics

logger = logging.getLogger(__name__)


class Keeper:
    """Keeps what one source needs at the target; for one thread, whose clients it opens and closes."""

    def __init__(self, settings: MirrorSettings, source: Source) -> None:
        self._settings = settings
        self._source = source
        self._stack = ExitStack()
        self._refused: dict[str, str] = {}

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        at_source, at_target = enter(self._source.cluster()), enter(self._settings.target.cluster())
        self._states = States(at_target, enter(self._settings.target.producer(producer_type="async")))
        self._topics = TopicKeeper(self._settings, self._source, at_source, at_target, self._states)
        self._groups = GroupMoves(
            self._source.name,
            self._group_side(self._source, at_source),
            self._group_side(self._settings.target, at_target),
            is_chosen=self._source.has_group,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def keep_topics(self) -> None:
        """Has the target's topics be as the source's are; raises MillraceError where a cluster can't be asked."""
        self._states.create()
        self._topics.keep()

    def keep_groups(self) -> None:
        """Moves groups to the target as far as their topics are mirrored; raises MillraceError as `keep_topics`."""
        states = [one for one in self._states.read().values() if one.state is State.MIRRORING]
        for result in self._groups.move(mirrored_topics(states, self._source.name)):
            if result.outcome is Outcome.FAILED:
                self._tell(result.group_id, result.errors[0])
            else:
                self._refused.pop(result.group_id, None)

    def _tell(self, group_id: str, error: MillraceError) -> None:
        """Tells why a group is not moved, once for each reason."""
        if self._refused.get(group_id) != str(error):
            self._refused[group_id] = str(error)
            logger.warning("mirror %s: group %s is not moved: %s", self._source.name, group_id, error)

    def _group_side(self, side: Side, cluster: Cluster) -> GroupSide:
        if side.zookeeper is None:
            return GroupSide(cluster)
        return GroupSide(cluster, self._stack.enter_context(closing(open_session(side.zookeeper))))
