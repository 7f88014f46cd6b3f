"""What belongs to a topic: the groups that have committed offsets in it, and the tables that loads make of it.

To find either takes a look at all groups, or at all tables, so what was found is kept: the groups for KEPT_S, and the
topic of a table, which never changes, for as long as the table is there.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millrace.client import Cluster, Groups
from millrace.client.groups import CONSUMER_PROTOCOL_TYPE
from millrace.clock import Clock
from millrace.errors import MillraceError

KEPT_S = 10.0
MAX_GROUPS = 200
MAX_TABLES = 1_000


class Committed(NamedTuple):
    """Holds the offsets that a group has committed in a topic, by partition."""

    group_id: str
    offsets: Mapping[int, int]


class GroupsOfTopics:
    """Finds the groups of a topic among the first MAX_GROUPS of the cluster; `unseen` counts the others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_at_s: float | None = None
        self._by_topic: Mapping[str, Sequence[Committed]] = {}
        self.unseen = 0

    def of(self, cluster: Cluster, topic: str) -> Sequence[Committed]:
        """Returns the groups with committed offsets in a topic; raises the error of a cluster that does not list any.

        Groups whose offsets the console may not see are left out.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._looked_at_s is None or now_s - self._looked_at_s > KEPT_S:
                self._look(cluster)
                self._looked_at_s = now_s
            return self._by_topic.get(topic, ())

    def _look(self, cluster: Cluster) -> None:
        groups = Groups(cluster)
        listed = sorted(one.group_id for one in groups.list() if one.protocol_type in ("", CONSUMER_PROTOCOL_TYPE))
        found: defaultdict[str, list[Committed]] = defaultdict(list)
        for group_id in listed[:MAX_GROUPS]:
            by_topic: defaultdict[str, dict[int, int]] = defaultdict(dict)
            try:
                committed = groups.offsets(group_id)
            except MillraceError:  # it was deleted meanwhile, or may not be asked for
                continue
            for (topic, partition), one in committed.items():
                if one.offset >= 0:
                    by_topic[topic][partition] = one.offset
            for topic, offsets in by_topic.items():
                found[topic].append(Committed(group_id, offsets))
        self._by_topic, self.unseen = found, len(listed[MAX_GROUPS:])


class TablesOfTopics:
    """Finds the tables of a topic among the first MAX_TABLES of a warehouse."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, str] = {}

    def of(self, locations: Mapping[str, str], topic: str) -> list[str]:
        """Returns the names of a topic's tables, where `locations` has the location of each table by its name.

        Tables that can't be read, and those that are not Millrace's, are left out.
        """
        from millrace_pipelines.warehouse.ledger.ledger import read_ledger  # noqa: PLC0415  # loaded once a page asks

        with self._lock:
            some = dict(sorted(locations.items())[:MAX_TABLES])
            self._topics = {one: self._topics[one] for one in some.values() if one in self._topics}
            for location in some.values() - self._topics.keys():
                try:
                    self._topics[location] = read_ledger(location).topic
                except (MillraceError, OSError):
                    continue
            return [name for name, location in some.items() if self._topics.get(location) == topic]
