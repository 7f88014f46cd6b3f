"""Makes mirrored topics ordinary ones: their writers and readers move to the target.

    state            step                                                            after a crash here
    mirroring        planned: the source's ends stay where they are, all is mirrored   nothing has happened
    switching        all instances let go of the topic; what is mirrored is looked up  the same steps again
    switching, ends  groups are moved the last time; a followed log's mirroring ends   those steps again
    switching, both  `mirror.source` is removed                                        that step again
    switched         all is done

Each step may be done twice, so that the same command completes what another one has begun. Until the ends of the source
are in the state, the topic can return to be mirrored, and does where something stands in the way.

An instance that hangs meanwhile can't write any more: copied progress is refused by the group, and a followed log does
not end where it expects.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from millrace.client import Cluster, Configs, Groups, ResourceKind
from millrace.client.mirrored_appends import MIRROR_SOURCE, end_mirroring
from millrace.errors import BrokerUnreachableError, ClientError
from millrace_pipelines.mirror.barrier import await_instances
from millrace_pipelines.mirror.group_side import GroupSide
from millrace_pipelines.mirror.groups import GroupMoves, GroupResult, Outcome
from millrace_pipelines.mirror.settings import Source, Way
from millrace_pipelines.mirror.sharing import group_of
from millrace_pipelines.mirror.states import State, States, TopicState
from millrace_pipelines.mirror.status import NO_ENDS, MirrorStatus, read_status
from millrace_pipelines.mirror.switch_plan import (
    Behind,
    Loss,
    behind,
    losses,
    mirrored_ends,
    refusal,
    target_ends,
    what_is_awaited,
)
from millrace_pipelines.mirror.telling import Tell
from millrace_pipelines.mirror.translation import mirrored_topics

STILL_S = 2.0  # for so long the source's ends must stay where they are
STATE_TRIES = 5
END_BATCHES = 1  # that the end of mirroring has beside one for each transaction that it aborts


class SwitchOverError(ClientError):
    """Topics can't be switched over: the sentence says what stands in the way."""


class SwitchedOver(NamedTuple):
    """A topic that was switched over, and how many transactions were open in it, which were aborted.

    `losses` and `behind` say what is missing after a switch-over without the source.
    """

    state: TopicState
    aborted: int = 0
    losses: tuple[Loss, ...] = ()
    behind: tuple[Behind, ...] = ()


class SwitchOver:
    """Switches topics of one source over; for one thread.

    Args:
        source: The source, as the settings name it.
        at_source: The source cluster's groups; None without the source.
        at_target: The target cluster's groups.
        states: The states in the target, to be read and written.
        tell: Shows a line to people.
        timeout_s: How long a planned switch-over waits until all is mirrored.
    """

    def __init__(
        self,
        source: Source,
        at_source: GroupSide | None,
        at_target: GroupSide,
        states: States,
        *,
        tell: Tell,
        timeout_s: float,
    ) -> None:
        self._source = source
        self._at_source = at_source
        self._groups = at_target
        self._target = at_target.cluster
        self._states = states
        self._tell = tell
        self._timeout_s = timeout_s
        self._pause = threading.Event()

    def run(self, topics: Sequence[TopicState]) -> Iterator[SwitchedOver]:
        """Switches topics over, and yields each as soon as it is; those that were before are passed over.

        Raises SwitchOverError for what stands in the way, and leaves the topics mirrored then.
        """
        wanted = [one for one in topics if one.state is not State.SWITCHED]
        if not wanted:
            return
        for one in wanted:
            if (reason := refusal(one, is_planned=self._at_source is not None)) is not None:
                raise SwitchOverError(reason)
        if self._at_source is not None:
            self._await_still(wanted, self._at_source.cluster)
        switching = [replace(one, state=State.SWITCHING, reason="", may_pass=False) for one in wanted]
        self._write_until_it_stands(switching)
        try:
            ended = self._with_ends(switching)
        except SwitchOverError:
            self._states.write(*(replace(one, state=State.MIRRORING) for one in switching if not one.source_ends))
            raise
        for one in ended:
            yield self._finish(one)

    def _await_still(self, topics: Sequence[TopicState], source: Cluster) -> None:
        """Waits until all is mirrored, and nothing more comes; raises SwitchOverError when time is up."""
        clock = self._target.clock
        deadline_s = clock.monotonic_s() + self._timeout_s
        self._tell(f"writers of {', '.join(one.topic for one in topics)} at {self._source.name} have to be stopped now")
        before: MirrorStatus | None = None
        while True:
            now = self._look(topics, source)
            awaited = what_is_awaited(now, before)
            if awaited is None:
                return
            if clock.monotonic_s() >= deadline_s:
                raise SwitchOverError(f"not switched over within {self._timeout_s:.0f} s: {awaited}")
            before = now
            self._pause.wait(STILL_S)

    def _look(self, topics: Sequence[TopicState], source: Cluster) -> MirrorStatus:
        status = read_status(self._source.name, source, self._target, topics)
        if status.source_error:
            raise BrokerUnreachableError(status.source_error)
        return status

    def _write_until_it_stands(self, switching: Sequence[TopicState]) -> None:
        """Writes the states, and waits for all instances; an instance may have written an older state meanwhile."""
        for _ in range(STATE_TRIES):
            self._states.write(*switching)
            await_instances(self._target, self._source.name)
            found = self._states.read()
            if all((one := found.get(each.key)) and one.state is State.SWITCHING for each in switching):
                return
        raise SwitchOverError("the mirror's instances write other states again and again; stop them, and try once more")

    def _with_ends(self, switching: Sequence[TopicState]) -> list[TopicState]:
        """Returns the topics with the ends up to which they are mirrored; moves the groups, as far as there are any."""
        self._await_progress(switching)
        begun = [one for one in switching if not one.source_ends]
        ends = self._ends(begun)
        found = [ends.get(one.key, one) for one in switching]
        if self._at_source is not None:
            self._move_groups(found, self._at_source)
        self._states.write(*found)
        return found

    def _await_progress(self, topics: Iterable[TopicState]) -> None:
        """Waits until no transaction of an instance can change the progress."""
        copied = {one.target_topic for one in topics if one.way is Way.COPY}
        if copied:
            listed = self._target.metadata(sorted(copied)).topics
            places = [(name, one) for name, topic in listed.items() for one in topic.partitions]
            Groups(self._target).offsets(group_of(self._source.name), places)

    def _ends(self, topics: Sequence[TopicState]) -> dict[str, TopicState]:
        if self._at_source is None:
            status = read_status(self._source.name, None, self._target, topics)
        else:
            status = self._look(topics, self._at_source.cluster)
            if (awaited := what_is_awaited(status, status)) is not None:
                raise SwitchOverError(f"not switched over: {awaited}")
        return {
            one.state.key: replace(
                one.state,
                source_ends=mirrored_ends(one.partitions),
                target_ends=target_ends(one.partitions) if one.state.way is Way.COPY else {},
            )
            for one in status.topics
        }

    def _move_groups(self, topics: Sequence[TopicState], source: GroupSide) -> None:
        """Moves the groups the last time; raises SwitchOverError where one still reads at the source."""
        moves = GroupMoves(self._source.name, source, self._groups, is_chosen=self._source.has_group)
        results = moves.move(mirrored_topics(topics, self._source.name), is_last=True)
        if stuck := [one for one in results if one.outcome in (Outcome.HAS_MEMBERS, Outcome.FAILED) or one.errors]:
            told = "; ".join(_told(one) for one in stuck)
            raise SwitchOverError(
                f"groups can't be moved: {told}; stop their readers, or leave the groups out (groups_exclude)"
            )

    def _finish(self, state: TopicState) -> SwitchedOver:
        aborted = 0
        if state.way is Way.FOLLOW:
            state, aborted = self._end(state)
            if MIRROR_SOURCE in self._properties(state.target_topic):
                Configs(self._target).change(ResourceKind.TOPIC, state.target_topic, {}, unset=[MIRROR_SOURCE])
        switched = replace(state, state=State.SWITCHED)
        self._states.write(switched)
        if self._at_source is not None:
            return SwitchedOver(switched, aborted)
        known = self._states.known_ends().get(state.key, NO_ENDS)
        return SwitchedOver(switched, aborted, tuple(losses(switched, known)), tuple(self._behind(switched)))

    def _end(self, state: TopicState) -> tuple[TopicState, int]:
        """Ends the mirroring into all partitions, once; returns the state with the logs' ends, and what was aborted."""
        if state.target_ends or MIRROR_SOURCE not in self._properties(state.target_topic):
            return state, 0
        partitions = sorted(self._target.metadata([state.target_topic]).topic(state.target_topic).partitions)
        ends = {one: end_mirroring(self._target, state.target_topic, one) for one in partitions}
        ended = replace(state, target_ends=ends)
        self._states.write(ended)
        return ended, sum(max(ends[one] - end - END_BATCHES, 0) for one, end in state.source_ends.items())

    def _properties(self, topic: str) -> set[str]:
        found = Configs(self._target).describe_topics([topic], [MIRROR_SOURCE])[topic]
        return {name for name, one in found.items() if one.value}

    def _behind(self, state: TopicState) -> Iterator[Behind]:
        for group_id in sorted(filter(self._source.has_group, self._groups.group_ids())):
            stored = self._groups.stored(group_id, [state.target_topic])
            yield from behind(self._source.name, group_id, stored, state)


def _told(result: GroupResult) -> str:
    return f"{result.group_id}: " + "; ".join(map(str, result.errors))
