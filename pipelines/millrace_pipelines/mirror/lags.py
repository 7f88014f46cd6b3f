"""How far behind its source each mirrored topic is, by what the two clusters say now, whoever runs the mirror.

followed    the source's high watermark minus the target's log end
copied      the source's last stable offset minus the offset that the mirror's group has committed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millrace.client import Cluster, Groups, read_log_offsets
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets
from millrace.client.metadata import Partition
from millrace.errors import MillraceError
from millrace_pipelines.mirror.settings import MirrorSettings, Source, Way
from millrace_pipelines.mirror.sharing import group_of
from millrace_pipelines.mirror.states import State, States, TopicState

Logs = Mapping[Partition, LogOffsets | MillraceError]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag:
    """A mirrored topic, and by how many offsets it is behind; None where that can't be told, for the `trouble`.

    `held_back` are the offsets of the source behind the begin of an open transaction, which can't be copied yet.
    """

    state: TopicState
    lag: int | None
    held_back: int = 0
    trouble: str = ""


def mirrored_topics(settings: MirrorSettings) -> dict[str, TopicState]:
    """Returns the states of the topics that a mirror has at its target, by their names there, without switched ones.

    Raises ClientError where the target does not answer.
    """
    names = {one.name for one in settings.sources}
    with settings.target.cluster() as target:
        states = States(target).read().values()
    return {one.target_topic: one for one in states if one.source in names and one.state is not State.SWITCHED}


def read_lags(settings: MirrorSettings, topics: Iterable[TopicState]) -> dict[str, TopicLag]:
    """Returns the lag of each of these topics, by their names at the target; raises none for a source that is away."""
    topics = list(topics)
    found: dict[str, TopicLag] = {}
    with settings.target.cluster() as target:
        for source in settings.sources:
            own = [one for one in topics if one.source == source.name]
            try:
                lags = _of_source(source, target, own) if own else []
            except MillraceError as error:
                lags = [TopicLag(state=one, lag=None, trouble=str(error)) for one in own]
            found |= {one.state.target_topic: one for one in lags}
    return found


def _of_source(source: Source, target: Cluster, topics: list[TopicState]) -> list[TopicLag]:
    followed = [one.topic for one in topics if one.way is Way.FOLLOW]
    copied = [one.topic for one in topics if one.way is Way.COPY]
    with source.cluster() as cluster:
        logs = {
            **_logs(cluster, followed, IsolationLevel.READ_UNCOMMITTED),
            **_logs(cluster, copied, IsolationLevel.READ_COMMITTED),
        }
    progress = _progress(source, target, topics, logs)
    return [_lag_of(one, logs, progress) for one in topics]


def _logs(cluster: Cluster, topics: list[str], isolation: IsolationLevel) -> Logs:
    if not topics:
        return {}
    there = cluster.metadata(topics).topics
    return read_log_offsets(cluster, [(name, one) for name in there for one in there[name].partitions], isolation)


def _progress(source: Source, target: Cluster, topics: list[TopicState], logs: Logs) -> dict[Partition, int]:
    """Returns the source offset up to which each partition is mirrored, by the partition of the source."""
    by_name = {one.topic: one for one in topics}
    here = {(by_name[topic].target_topic, index): (topic, index) for topic, index in logs}
    followed = [one for one, at_source in here.items() if by_name[at_source[0]].way is Way.FOLLOW]
    copied = [one for one in here if one not in set(followed)]
    ends = read_log_offsets(target, followed, IsolationLevel.READ_UNCOMMITTED) if followed else {}
    committed = Groups(target).offsets(group_of(source.name), copied) if copied else {}
    found = {here[one]: log.log_end for one, log in ends.items() if isinstance(log, LogOffsets)}
    return found | {here[one]: offset.offset for one, offset in committed.items() if offset.offset >= 0}


def _lag_of(state: TopicState, logs: Logs, progress: Mapping[Partition, int]) -> TopicLag:
    own = {one: log for one, log in logs.items() if one[0] == state.topic}
    if not own:
        return TopicLag(state=state, lag=None, trouble=f"{state.source} has no topic {state.topic} now")
    total = held_back = 0
    for one, log in own.items():
        if isinstance(log, MillraceError):
            return TopicLag(state=state, lag=None, trouble=str(log))
        begin = max(log.start_offset, state.starts.get(one[1], 0))
        total += max(log.end_offset - max(progress.get(one, begin), begin), 0)
        held_back += log.log_end - log.end_offset
    return TopicLag(state=state, lag=total, held_back=held_back)
