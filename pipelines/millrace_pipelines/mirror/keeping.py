"""What the leader of a source's group keeps for all instances, each chore after its own interval.

    topics    created, grown, changed, deleted as at the source (`topic_keeper`)
    access    ACLs, quotas and users, where asked for (`access`)
    groups    their offsets, translated (`group_keeper`)
    ends      where the source ends is written down, for when it is gone (`known_ends`)
    maps      offset maps lose what the target has deleted (`offset_map_keeper`)

A chore that fails stops no other, and is done again after its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from millrace.clock import Clock
from millrace.errors import BrokerUnreachableError, MillraceError
from millrace_pipelines.mirror.access import AccessKeeper
from millrace_pipelines.mirror.group_keeper import GroupKeeper
from millrace_pipelines.mirror.groups import GroupResult
from millrace_pipelines.mirror.known_ends import KnownEndsKeeper
from millrace_pipelines.mirror.offset_map_keeper import remove_deleted_runs
from millrace_pipelines.mirror.offset_map_topic import OFFSET_MAP_TOPIC
from millrace_pipelines.mirror.rights import TARGET, needing, reach, side_of
from millrace_pipelines.mirror.settings import MirrorSettings, Source
from millrace_pipelines.mirror.states import STATES_TOPIC, States
from millrace_pipelines.mirror.topic_keeper import TopicKeeper
from millrace_pipelines.mirror.translation import mirrored_topics

TOPICS = "topics"
ENDS_INTERVAL_MS = 5_000
MAPS_INTERVAL_MS = 600_000


@dataclass(slots=True)
class _Chore:
    interval_s: float
    keep: Callable[[], object]
    due_s: float = 0.0


class Keeper:
    """Keeps what one source needs at the target; for one thread, whose clients it opens and closes.

    `note` takes what becomes of each group.
    """

    def __init__(
        self, settings: MirrorSettings, source: Source, clock: Clock, note: Callable[[GroupResult], object]
    ) -> None:
        self._settings = settings
        self._source = source
        self._now_s = clock.monotonic_s
        self._note = note
        self._stack = ExitStack()
        self._chores: dict[str, _Chore] = {}

    def __enter__(self) -> Self:
        settings, source, enter = self._settings, self._source, self._stack.enter_context
        self._at_source, self._at_target = enter(source.cluster()), enter(settings.target.cluster())
        reach(self._at_source, side_of(source.name))
        reach(self._at_target, TARGET)
        self._states = States(self._at_target, enter(settings.target.producer(producer_type="async")))
        both = settings, source, self._at_source, self._at_target, self._states
        self._topics, access = TopicKeeper(*both), AccessKeeper(*both)
        self._groups = enter(GroupKeeper(*both, note=self._note))
        ends = KnownEndsKeeper(source.name, self._at_source, self._states)
        self._chores = {
            TOPICS: _Chore(settings.topics_interval_ms / 1000, self._keep_topics),
            "access": _Chore(settings.access_interval_ms / 1000, access.keep),
            "groups": _Chore(settings.groups_interval_ms / 1000, self._groups.keep),
            "source ends": _Chore(ENDS_INTERVAL_MS / 1000, ends.keep),
            "offset maps": _Chore(MAPS_INTERVAL_MS / 1000, self._keep_maps),
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def pause_s(self) -> float:
        """How long it is until the next chore is due."""
        return max(min(one.due_s for one in self._chores.values()) - self._now_s(), 0.0)

    def keep(self) -> Mapping[str, MillraceError | None]:
        """Does the chores that are due; returns each with its error, None where it is done."""
        found: dict[str, MillraceError | None] = {}
        for name, chore in self._chores.items():
            if self._now_s() < chore.due_s:
                continue
            try:
                chore.keep()
            except MillraceError as error:
                found[name] = error
            else:
                found[name] = None
            chore.due_s = self._now_s() + chore.interval_s
            if isinstance(found[name], BrokerUnreachableError):
                break  # the others would not reach the cluster either
        return found

    def keep_groups(self) -> None:
        """Moves the groups now; raises MillraceError where a cluster can't be asked."""
        self._groups.keep()

    def _keep_topics(self) -> None:
        with needing(TARGET, topic=f"Create on topic {STATES_TOPIC}"):
            self._states.create()
        self._topics.keep()

    def _keep_maps(self) -> None:
        topics = mirrored_topics(self._states.read().values(), self._source.name)
        if any(not one.is_followed for one in topics):
            with needing(TARGET, topic=f"Read and Write on topic {OFFSET_MAP_TOPIC}"):
                remove_deleted_runs(self._at_target, self._source.name, topics)
