"""Writes down where the topics of a source end, now and then, so that it can be told what is lost once it is gone.

It has a record of its own beside each topic's state: a state that somebody else has just changed must not be
overwritten for the sake of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.client import Cluster
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import read_log_offsets
from millrace.errors import MillraceError
from millrace_pipelines.mirror.states import State, States

LIVELY = (State.MIRRORING, State.PAUSED, State.STOPPED)


class KnownEndsKeeper:
    """Keeps the known ends of one source's topics; it belongs to the thread of its clusters."""

    def __init__(self, mirror: str, at_source: Cluster, states: States) -> None:
        self._mirror = mirror
        self._at_source = at_source
        self._states = states

    def keep(self) -> None:
        """Writes the ends that have changed; raises MillraceError where the source does not tell its topics."""
        states = [one for one in self._states.read().values() if one.source == self._mirror and one.state in LIVELY]
        now = topic_ends(self._at_source, [one.topic for one in states])
        known = self._states.known_ends()
        ends = {one.key: now[one.topic] for one in states if now.get(one.topic)}
        changed = {key: one for key, one in ends.items() if key not in known or known[key].ends != one}
        if changed:
            self._states.write_ends(changed)


def topic_ends(cluster: Cluster, topics: list[str]) -> Mapping[str, dict[int, int]]:
    """Returns the high watermarks of topics, by partition, of those that tell theirs."""
    if not topics:
        return {}
    found: dict[str, dict[int, int]] = {}
    listed = cluster.metadata(sorted(topics))
    partitions = [(name, one) for name, topic in listed.topics.items() for one in topic.partitions]
    logs = read_log_offsets(cluster, partitions, IsolationLevel.READ_UNCOMMITTED, metadata=listed)
    for (topic, partition), log in logs.items():
        if not isinstance(log, MillraceError):
            found.setdefault(topic, {})[partition] = log.log_end
    return found
