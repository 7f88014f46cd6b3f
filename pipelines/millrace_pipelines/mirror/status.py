"""How far a mirror is, by what both clusters say: no instance is asked, and none needs to run.

    followed    the target's log end offset says up to which offset of the source all is there
    copied      the mirror's group says it, at the target

Where the source does not answer, its known ends count, as they were written down while it did (`known_ends`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace.client import Cluster, Groups
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import Partition
from millrace.errors import MillraceError
from millrace.records.batch import NO_OFFSET, NO_TIMESTAMP, read_header
from millrace_pipelines.mirror.barrier import instances
from millrace_pipelines.mirror.fetching import ONE_BATCH, Fetcher
from millrace_pipelines.mirror.rights import TARGET
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.sharing import group_of
from millrace_pipelines.mirror.states import KnownEnds, KnownStop, State, States, TopicState

UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
NO_ENDS = KnownEnds({}, NO_TIMESTAMP)
Logs = Mapping[Partition, LogOffsets | MillraceError]


class PartitionStatus(NamedTuple):
    """How far one partition is.

    Attributes:
        partition: Its number.
        source_end: Where the source ends: the offset up to which it can be mirrored; None where that is not known.
        mirrored_end: The offset of the source up to which all is at the target; None where that is not known.
        target_end: Where the target's log ends; None where that is not known.
        newest_ms: The time of the newest batch at the target; -1 where there is none, or it is not known.
        held_back: How many offsets of the source lie behind the begin of an open transaction, and can't be copied yet.
        error: What a cluster says in place of that; "" for nothing.
        stop: Why it has stopped alone; "" where it has not.
    """

    partition: int
    source_end: int | None
    mirrored_end: int | None
    target_end: int | None
    newest_ms: int = NO_TIMESTAMP
    held_back: int = 0
    error: str = ""
    stop: str = ""

    @property
    def lag(self) -> int | None:
        """How many offsets are still to be mirrored; None where that is not known."""
        if self.source_end is None or self.mirrored_end is None:
            return None
        return max(self.source_end - self.mirrored_end, 0)


class TopicStatus(NamedTuple):
    """The state of a topic, and how far its partitions are, without those that neither cluster tells of."""

    state: TopicState
    partitions: tuple[PartitionStatus, ...]

    @property
    def lag(self) -> int | None:
        """How many offsets are still to be mirrored; None where it is not known of each partition."""
        lags = [one.lag for one in self.partitions]
        return None if None in lags else sum(one or 0 for one in lags)

    @property
    def held_back(self) -> int:
        """How many offsets of the source lie behind the begin of an open transaction, and can't be copied yet."""
        return sum(one.held_back for one in self.partitions)

    @property
    def stopped(self) -> tuple[PartitionStatus, ...]:
        """The partitions that have stopped alone."""
        return tuple(one for one in self.partitions if one.stop)

    @property
    def reason(self) -> str:
        """Why the topic, or some of its partitions, are not mirrored; "" where nothing has stopped."""
        return self.state.reason or "; ".join(dict.fromkeys(one.stop for one in self.stopped))

    @property
    def newest_ms(self) -> int:
        """The time of the newest batch at the target; -1 where it is not known."""
        return max((one.newest_ms for one in self.partitions), default=NO_TIMESTAMP)


class MirrorStatus(NamedTuple):
    """How far one source's topics are.

    Attributes:
        topics: By their names at the source.
        instances: How many instances of the mirror run.
        source_error: Why the source can't be asked; "" if it can.
        known_ms: Since when nothing newer is known of the source; -1 if it answers, or nothing is known.
    """

    topics: tuple[TopicStatus, ...]
    instances: int
    source_error: str = ""
    known_ms: int = NO_TIMESTAMP


def read_status(mirror: str, source: Cluster | None, target: Cluster, states: Iterable[TopicState]) -> MirrorStatus:
    """Returns how far these topics of a source are, without the source by its last known ends.

    Raises MillraceError where the target can't be asked.
    """
    topics = list(states)
    reader = States(target)
    reader.read()
    known = {one.key: reader.known_ends().get(one.key, NO_ENDS) for one in topics}
    stops = reader.known_stops()
    try:
        at_source, error = {} if source is None else _source_logs(source, topics), ""
    except MillraceError as gone:
        at_source, error = {}, str(gone)
    at_target = _logs(target, [one.target_topic for one in topics], UNCOMMITTED)
    progress = _progress(target, mirror, topics)
    newest = _newest(target, at_target)
    logs = _Logs(at_source, at_target, progress, newest)
    found = tuple(
        TopicStatus(one, tuple(_partitions(one, logs, known[one.key], stops.get(one.key, {})))) for one in topics
    )
    known_ms = max((one.known_ms for one in known.values()), default=NO_TIMESTAMP) if error else NO_TIMESTAMP
    return MirrorStatus(found, instances(target, mirror), error, known_ms)


class _Logs(NamedTuple):
    at_source: Logs
    at_target: Logs
    progress: Mapping[Partition, int]
    newest: Mapping[Partition, int]


def _partitions(
    state: TopicState, of: _Logs, known: KnownEnds, stops: Mapping[int, KnownStop]
) -> Iterable[PartitionStatus]:
    indexes = {index for topic, index in of.at_source if topic == state.topic}
    indexes |= {index for topic, index in of.at_target if topic == state.target_topic} | set(known.ends)
    for index in sorted(indexes):
        there, here = of.at_source.get((state.topic, index)), of.at_target.get((state.target_topic, index))
        source_end = there.end_offset if isinstance(there, LogOffsets) else known.ends.get(index)
        target_end = here.log_end if isinstance(here, LogOffsets) else None
        mirrored = target_end if state.way is Way.FOLLOW else of.progress.get((state.target_topic, index), 0)
        if state.state is State.SWITCHED:
            source_end = mirrored = state.source_ends.get(index)
        yield PartitionStatus(
            index,
            source_end,
            mirrored,
            target_end,
            of.newest.get((state.target_topic, index), NO_TIMESTAMP),
            there.log_end - there.end_offset if isinstance(there, LogOffsets) else 0,
            "; ".join(str(one) for one in (there, here) if isinstance(one, MillraceError)),
            stops[index].reason if index in stops and state.state is not State.SWITCHED else "",
        )


def _source_logs(cluster: Cluster, topics: list[TopicState]) -> dict[Partition, LogOffsets | MillraceError]:
    found: dict[Partition, LogOffsets | MillraceError] = {}
    for way, isolation in ((Way.FOLLOW, UNCOMMITTED), (Way.COPY, COMMITTED)):
        found |= _logs(cluster, [one.topic for one in topics if one.way is way], isolation)
    return found


def _logs(cluster: Cluster, topics: list[str], isolation: IsolationLevel) -> Logs:
    if not topics:
        return {}
    listed = cluster.metadata(sorted(topics))
    partitions = [(name, one) for name, topic in listed.topics.items() for one in topic.partitions]
    return read_log_offsets(cluster, partitions, isolation, metadata=listed)


def _progress(target: Cluster, mirror: str, topics: list[TopicState]) -> Mapping[Partition, int]:
    if all(one.way is Way.FOLLOW for one in topics):
        return {}
    offsets = Groups(target).offsets(group_of(mirror))
    return {one: each.offset for one, each in offsets.items() if each.offset != NO_OFFSET}


def _newest(target: Cluster, logs: Logs) -> dict[Partition, int]:
    """Returns the time of the last batch in each log that has one."""
    last = {
        one: log.log_end - 1
        for one, log in logs.items()
        if isinstance(log, LogOffsets) and log.log_end > log.start_offset
    }
    answers = Fetcher(target, UNCOMMITTED, TARGET).fetch(last, ONE_BATCH) if last else {}
    return {
        one: read_header(answer.records).max_timestamp
        for one, answer in answers.items()
        if not isinstance(answer, MillraceError) and answer.records
    }
