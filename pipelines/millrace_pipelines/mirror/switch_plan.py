"""What switch-overs and switch-backs decide by what they have seen: what is awaited, lost, turned round. It is pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from millrace.client.metadata import Partition
from millrace_pipelines.mirror.group_plan import Stored, mark_of
from millrace_pipelines.mirror.offset_map import Run
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import KnownEnds, State, TopicState
from millrace_pipelines.mirror.status import MirrorStatus, PartitionStatus

SWITCH_BACK = "a switch-back is under way"
"""The reason of a topic that is being switched back: a switch-over leaves it alone."""


class Behind(NamedTuple):
    """A group that had read more at the source than there is at the target."""

    group_id: str
    topic: str
    partition: int
    source_offset: int
    mirrored_end: int

    def __str__(self) -> str:
        return (
            f"group {self.group_id} had read {self.topic}-{self.partition} up to offset {self.source_offset} at the "
            f"source, and only what lies below {self.mirrored_end} is here: it goes on at the end"
        )


class Loss(NamedTuple):
    """What may be lost of a partition; `lost` is None where no end of the source is known."""

    topic: str
    partition: int
    mirrored_end: int
    lost: int | None
    known_ms: int

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}: mirrored up to offset {self.mirrored_end}"
        if self.lost is None:
            return f"{place}; where the source ended is not known"
        return f"{place}; {self.lost} offsets are lost that the source had by then, and whatever came later"


def refusal(state: TopicState, *, is_planned: bool) -> str | None:
    """Returns why a topic can't be switched over; None if it can."""
    if state.state is State.SWITCHING and state.reason == SWITCH_BACK:
        return f"{state.key}: {SWITCH_BACK}; run that command again, which completes it"
    if is_planned and state.state in (State.PAUSED, State.STOPPED):
        why = f": {state.reason}" if state.reason else ""
        return (
            f"{state.key} is {state.state}{why}; resume it, or switch it over as it is, with what is missing, with "
            "--source-is-gone"
        )
    return None


def what_is_awaited(now: MirrorStatus, before: MirrorStatus | None) -> str | None:
    """Returns what keeps the topics from being switched over as planned; None if nothing does.

    `before` is an earlier look, since which no partition of the source may have got longer.
    """
    for topic in now.topics:
        for one in topic.partitions:
            place = f"{topic.state.topic}-{one.partition}"
            if one.error or one.lag is None:
                return f"{place}: {one.error or 'where it ends is not known'}"
            if one.held_back:
                return f"{place}: a transaction is open at the source, with {one.held_back} offsets behind its begin"
            if one.lag:
                runs = "" if now.instances else ", and no instance of the mirror runs"
                return f"{place}: {one.lag} offsets are still to be mirrored{runs}"
    if before is None or _ends(before) != _ends(now):
        return "writers at the source go on: its logs get longer"
    return None


def mirrored_ends(partitions: Iterable[PartitionStatus]) -> dict[int, int]:
    """Returns up to which offset of the source each partition is mirrored."""
    return {one.partition: one.mirrored_end for one in partitions if one.mirrored_end is not None}


def target_ends(partitions: Iterable[PartitionStatus]) -> dict[int, int]:
    """Returns where each partition's log ends at the target."""
    return {one.partition: one.target_end for one in partitions if one.target_end is not None}


def losses(state: TopicState, known: KnownEnds) -> Iterator[Loss]:
    """Yields the partitions of which the source had more than was mirrored, or of which that is not known."""
    for partition, mirrored in sorted(state.source_ends.items()):
        end = known.ends.get(partition)
        if end is None or end > mirrored:
            yield Loss(state.topic, partition, mirrored, None if end is None else end - mirrored, known.known_ms)


def behind(mirror: str, group_id: str, stored: Mapping[Partition, Stored], state: TopicState) -> Iterator[Behind]:
    """Yields the partitions of a topic of which a group had read more than was mirrored, by the mirror's marks."""
    for (topic, partition), one in sorted(stored.items()):
        mark = mark_of(one, mirror)
        end = state.source_ends.get(partition)
        if topic == state.target_topic and mark is not None and end is not None and mark.source > end:
            yield Behind(group_id, state.topic, partition, mark.source, end)


def reversed_state(over: TopicState, mirror: str, cluster_id: str, way: Way) -> TopicState:
    """Returns the state, as it is begun, of a topic that was switched over and is to be mirrored the other way."""
    return TopicState(
        source=mirror,
        topic=over.target_topic,
        target_topic=over.topic,
        way=way,
        state=State.SWITCHING,
        reason=SWITCH_BACK,
        source_cluster_id=cluster_id,
        origins=(cluster_id,),
    )


def reversed_runs(runs: Iterable[Run], begin: int) -> list[Run]:
    """Returns runs with their sides exchanged, without what lies below an offset of the new source."""
    found = []
    for one in runs:
        known = max(begin - one.target, 0)
        if known < one.length:
            found.append(Run(one.target + known, one.source + known, one.length - known))
    return found


def _ends(status: MirrorStatus) -> list[tuple[str, int, int | None]]:
    return [(topic.state.key, one.partition, one.source_end) for topic in status.topics for one in topic.partitions]
