"""Has the former source of topics that were switched over mirror them again, from where they are written now.

    before   the source T ──the mirror X──► U, which was switched over: written and read there
    after    T ◄──the mirror N── U; a switch-over of N brings everybody home

Here the source is the cluster that has U, and the target the one that has T. What X has done is turned round, so that
no record comes home, and no group reads anything twice:

    offsets    copied: the runs of X's offset map with their sides exchanged are the beginning of N's
               followed by X, and copied now: the offsets are the same up to where X has come
    progress   what U has beyond the end of X's mirroring is to come, and nothing below it
    logs       followed: T's log must be the beginning of U's, and `mirror.source` is set for it again
    groups     where they stand in T is marked as committed by N, so that N moves them on, and never back

All of it may be done twice: the state of N's topic is that of a switch-back until all is done. A log of T that has what
U lacks can't be followed from U: with `recreate` T is deleted, and mirrored from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from millrace.client import Admin, Configs, Groups, ResourceKind
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import Partition
from millrace.client.mirrored_appends import MIRROR_SOURCE, can_be_followed_into
from millrace.client.producer import Producer
from millrace.errors import ClientError, MillraceError, UnknownTopicError
from millrace_pipelines.mirror.barrier import instances
from millrace_pipelines.mirror.copy import Ids, Progress
from millrace_pipelines.mirror.group_plan import Wanted, plan_marks
from millrace_pipelines.mirror.group_side import GroupSide
from millrace_pipelines.mirror.offset_map import MappedRuns, OffsetMap, Run
from millrace_pipelines.mirror.offset_map_topic import (
    OFFSET_MAP_TOPIC,
    OffsetMaps,
    create_offset_map_topic,
    map_records,
)
from millrace_pipelines.mirror.same_logs import Unshared, unshared
from millrace_pipelines.mirror.settings import Source, Way
from millrace_pipelines.mirror.sharing import group_of
from millrace_pipelines.mirror.states import State, States, TopicState
from millrace_pipelines.mirror.switch_plan import SWITCH_BACK, reversed_runs, reversed_state
from millrace_pipelines.mirror.topic_view import topic_id_of

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


class SwitchBackError(ClientError):
    """Topics can't be switched back: the sentence says what stands in the way."""


class SwitchedBack(NamedTuple):
    """A topic that is mirrored the other way, and the partitions in which the former source has more of its own."""

    state: TopicState
    unshared: tuple[Unshared, ...] = ()


class SwitchBack:
    """Switches topics back; for one thread.

    Args:
        source: The cluster at which the topics are written now, as the settings name it.
        at_source: Its groups.
        at_target: The groups of the cluster that is to have them again.
        states: The states in the target, to be read and written.
        producer: Writes to the target.
        way: To follow, to copy, or as it can be.
        recreate: Whether a topic whose log can't be followed on is deleted, and mirrored from the beginning.
    """

    def __init__(
        self,
        source: Source,
        at_source: GroupSide,
        at_target: GroupSide,
        states: States,
        producer: Producer,
        *,
        way: Way = Way.AUTO,
        recreate: bool = False,
    ) -> None:
        self._source = source
        self._there = at_source.cluster
        self._groups = at_target
        self._here = at_target.cluster
        self._states = states
        self._producer = producer
        self._way = way
        self._recreates = recreate

    def topics(self) -> list[TopicState]:
        """Returns the topics that were switched over from the target to the source, and not back since."""
        here_id = self._here.metadata([]).cluster_id
        ours = self._states.read()
        found = []
        for one in States(self._there).read().values():
            back = ours.get(f"{self._source.name}/{one.target_topic}")
            is_later = back is not None and back.state is State.SWITCHED and back.changed_ms > one.changed_ms
            is_under_way = back is not None and back.state is not State.SWITCHED and back.reason != SWITCH_BACK
            if one.state is State.SWITCHED and one.source_cluster_id == here_id and not is_later and not is_under_way:
                found.append(one)
        return sorted(found, key=lambda one: one.key)

    def check_direction(self) -> None:
        """Raises SwitchBackError where a topic was switched over from the source to the target: the wrong way round."""
        came_from = self._source.name, self._there.metadata([]).cluster_id
        for one in self._states.read().values():
            is_ours = (one.source, one.source_cluster_id) == came_from and self._source.has_topic(one.topic)
            if is_ours and one.state is State.SWITCHED:
                raise SwitchBackError(
                    f"{one.topic} was switched over from {one.source} to the target: to switch it back, give the "
                    "cluster that has it now as the source, and the former source as the target"
                )

    def run(self, topics: Sequence[TopicState]) -> Iterator[SwitchedBack]:
        """Switches topics back, and yields each as soon as it is; raises SwitchBackError for what is in the way."""
        for one in topics:
            self._refuse_readers(one)
        for one in topics:
            yield self._switch(one)

    def _refuse_readers(self, over: TopicState) -> None:
        for group_id in self._reading(over.topic):
            self._groups.refuse_members(group_id)

    def _reading(self, topic: str) -> list[str]:
        """Returns the groups that have offsets in a topic at the target."""
        chosen = sorted(filter(self._source.has_group, self._groups.group_ids()))
        return [one for one in chosen if self._groups.stored(one, [topic])]

    def _switch(self, over: TopicState) -> SwitchedBack:
        way = self._way_of(over)
        extra = tuple(unshared(self._here, self._there, over)) if self._is_here(over.topic) else ()
        begun = reversed_state(over, self._source.name, self._there.metadata([]).cluster_id or "", way)
        if self._recreates and (extra or way is not self._possible_way(over) or not self._is_here(over.topic)):
            return SwitchedBack(self._recreate(begun))
        if extra and way is Way.FOLLOW:
            told = "; ".join(map(str, extra))
            raise SwitchBackError(
                f"{over.topic} can't be followed on, as its log is not the beginning of that of {over.target_topic}: "
                f"{told}. Save what is to be saved (millrace dump, millrace consume --offset), then delete it and "
                "mirror it from the beginning with --recreate"
            )
        target_id = topic_id_of(self._here, begun.target_topic)
        begun = replace(begun, source_topic_id=topic_id_of(self._there, begun.topic), target_topic_id=target_id)
        self._states.write(begun)
        self._mark_groups(begun)
        if way is Way.FOLLOW:
            value = {MIRROR_SOURCE: self._source.name}
            Configs(self._here).change(ResourceKind.TOPIC, begun.target_topic, value)
        else:
            self._hand_over_map(over, begun)
        done = replace(begun, state=State.MIRRORING, reason="")
        self._states.write(done)
        return SwitchedBack(done, extra)

    def _is_here(self, topic: str) -> bool:
        return not self._here.metadata([topic]).lacks([topic])

    def _possible_way(self, over: TopicState) -> Way:
        """Returns the way in which the topic can go on as it is."""
        can_follow = over.way is Way.FOLLOW and can_be_followed_into(self._here)
        return Way.FOLLOW if can_follow and self._way is not Way.COPY else Way.COPY

    def _way_of(self, over: TopicState) -> Way:
        way = self._possible_way(over)
        if way is Way.COPY and self._way is Way.FOLLOW:
            if not self._recreates:
                raise SwitchBackError(
                    f"{over.topic} can't be followed on: its offsets are not those of {over.target_topic}; copy it "
                    "(way = copy), or delete it and mirror it from the beginning with --recreate"
                )
            return Way.FOLLOW
        return way

    def _recreate(self, begun: TopicState) -> TopicState:
        """Deletes the topic, and leaves it to the mirror to create it again."""
        self._states.write(begun)
        self._mark_groups(begun, at_beginning=True)
        with suppress(UnknownTopicError):  # a command before this one has deleted it
            Admin(self._here).delete_topic(begun.target_topic)
        source_id = topic_id_of(self._there, begun.topic)
        done = replace(begun, state=State.MIRRORING, reason="", source_topic_id=source_id, target_topic_id=None)
        self._states.write(done)
        return done

    def _mark_groups(self, begun: TopicState, *, at_beginning: bool = False) -> None:
        """Marks where groups stand as committed by this mirror, which then moves them on."""
        for group_id in self._reading(begun.target_topic):
            stored = self._groups.stored(group_id, [begun.target_topic], stable=True)
            wanted = {one: Wanted(0, 0 if at_beginning else at.furthest) for one, at in stored.items()}
            self._groups.commit(group_id, plan_marks(self._source.name, wanted, stored))

    def _hand_over_map(self, over: TopicState, begun: TopicState) -> None:
        """Writes the offset map with its sides exchanged, and the progress that belongs to it."""
        if instances(self._here, self._source.name):
            raise SwitchBackError(
                f"instances of the mirror {self._source.name} run: stop them until {begun.topic} is switched back"
            )
        create_offset_map_topic(self._here)
        partitions = sorted(over.source_ends)
        maps = self._maps(over, partitions)
        known = OffsetMaps(self._here, self._source.name).read([(begun.topic, one) for one in partitions])
        for partition in partitions:
            has = known[begun.topic, partition].last
            runs = reversed_runs(maps[partition], 0 if has is None else has.source_end)
            mapped = MappedRuns(over.target_ends[partition], runs)
            for index, key, value in map_records(self._source.name, begun.topic, partition, mapped):
                self._producer.send(OFFSET_MAP_TOPIC, value, key=key, partition=index)
        self._producer.flush()
        ids = Ids(begun.source_topic_id, begun.target_topic_id)
        progress = {(begun.target_topic, one): Progress(over.target_ends[one], ids).to_commit for one in partitions}
        Groups(self._here).commit(group_of(self._source.name), progress)

    def _maps(self, over: TopicState, partitions: Sequence[int]) -> Mapping[int, OffsetMap]:
        """Returns the offset maps of the mirror that was switched over; followed logs have the same offsets."""
        places: list[Partition] = [(over.topic, one) for one in partitions]
        if over.way is Way.COPY:
            return {one[1]: each for one, each in OffsetMaps(self._there, over.source).read(places).items()}
        logs = read_log_offsets(self._there, [(over.target_topic, one) for one in partitions], UNCOMMITTED)
        return {one: _identity(logs[over.target_topic, one], over.source_ends[one]) for one in partitions}


def _identity(log: LogOffsets | MillraceError, end: int) -> OffsetMap:
    if isinstance(log, MillraceError):
        raise log
    found = OffsetMap()
    if end > log.start_offset:
        found.add(Run(log.start_offset, log.start_offset, end - log.start_offset))
    return found
