"""Keeps the offsets of a source's groups at the target; in the instance that leads the mirror's group.

    keep        again and again: what the groups have read since goes along (`groups`)
    keep_last   once the groups have stopped at the source, for a switch-over
    keep_back   for a switch-back: what they have read at the target

What stands in the way of a group is logged when it begins, not each time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Self

from millrace.client import Cluster
from millrace.client.consumer.group_offsets import open_session
from millrace_pipelines.mirror.group_side import GroupSide
from millrace_pipelines.mirror.groups import GroupMoves, GroupResult, Outcome
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source
from millrace_pipelines.mirror.states import States
from millrace_pipelines.mirror.translation import MirroredTopic, mirrored_topics

logger = logging.getLogger(__name__)


class GroupKeeper:
    """Moves the groups of one source, for the thread of its clusters; opens and closes sessions with ZooKeeper.

    `note` takes each result.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        source: Source,
        at_source: Cluster,
        at_target: Cluster,
        states: States,
        *,
        note: Callable[[GroupResult], object] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._source = source
        self._clusters = at_source, at_target
        self._states = states
        self._note = note
        self._stack = ExitStack()
        self._told: dict[str, str] = {}

    def __enter__(self) -> Self:
        at_source, at_target = self._clusters
        source, target = self._side(self._source, at_source), self._side(self._settings.target, at_target)
        self._moves = GroupMoves(self._source.name, source, target, is_chosen=self._source.has_group)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def keep(self) -> list[GroupResult]:
        """Makes one pass; returns what became of the groups that have something new.

        Raises MillraceError where a cluster can't be asked for its groups at all.
        """
        return self._tell(self._moves.move(self._topics()))

    def keep_last(self) -> list[GroupResult]:
        """Makes the last pass, over all groups; one that has not stopped at the source is refused."""
        return self._tell(self._moves.move(self._topics(), is_last=True))

    def keep_back(self) -> list[GroupResult]:
        """Carries back to the source what the groups have read at the target."""
        return self._tell(self._moves.move_back(self._topics()))

    def _topics(self) -> list[MirroredTopic]:
        return mirrored_topics(self._states.read().values(), self._source.name, also_switched=False)

    def _side(self, side: Side, cluster: Cluster) -> GroupSide:
        if side.zookeeper is None:
            return GroupSide(cluster)
        session = open_session(side.zookeeper)
        self._stack.callback(session.close)
        return GroupSide(cluster, session)

    def _tell(self, results: list[GroupResult]) -> list[GroupResult]:
        for one in results:
            self._note(one)
        for group_id, trouble in troubles(results):
            if self._told.get(group_id, "") != trouble:
                self._told[group_id] = trouble
                if trouble:
                    logger.warning("group %s of %s: %s", group_id, self._source.name, trouble)
        return results


def troubles(results: Iterable[GroupResult]) -> Iterable[tuple[str, str]]:
    """Yields each group with what stands in its way as text: "" for nothing, or for members, which is no fault."""
    for one in results:
        is_fault = one.outcome is not Outcome.HAS_MEMBERS
        yield one.group_id, "; ".join(map(str, one.errors)) if is_fault else ""
