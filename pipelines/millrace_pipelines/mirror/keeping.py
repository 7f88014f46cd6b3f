"""What the leader of a source's group keeps for all instances: topics, access rights, and the offsets of groups.

Each has its own interval, and a failure of one stops no other. Groups are moved after topics, which they need.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Self

from millrace_pipelines.mirror.settings import MirrorSettings, Source
from millrace_pipelines.mirror.states import States
from millrace_pipelines.mirror.topic_keeper import TopicKeeper

logger = logging.getLogger(__name__)


class Keeper:
    """Keeps what one source needs at the target; for one thread, whose clients it opens and closes."""

    def __init__(self, settings: MirrorSettings, source: Source) -> None:
        self._settings = settings
        self._source = source
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        at_source, at_target = enter(self._source.cluster()), enter(self._settings.target.cluster())
        self._states = States(at_target, enter(self._settings.target.producer(producer_type="async")))
        self._topics = TopicKeeper(self._settings, self._source, at_source, at_target, self._states)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def keep_topics(self) -> None:
        """Has the target's topics be as the source's are; raises MillraceError where a cluster can't be asked."""
        self._states.create()
        self._topics.keep()
