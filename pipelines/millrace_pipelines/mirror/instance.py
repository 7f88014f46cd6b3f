"""One source in one instance of the mirror: its membership in the source's group, and the loops of its partitions.

    the thread "mirror-NAME"   the group's member: which partitions are this instance's, by states and members
    the thread "keep-NAME"     on the group's leader: what is kept for all instances (`keeping`)
    the thread "follow-NAME"   the followed partitions; beside it "fetch-follow-NAME"
    the thread "copy-NAME"     the copied partitions; beside it "fetch-copy-NAME", and those of a producer

Each thread has connections of its own. What fails is tried again. A source that is the target itself ends the instance,
as does a thread that ends by anything else than an error of Millrace's.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from millrace.client import Cluster
from millrace.client.fetched import IsolationLevel
from millrace.client.group_member import GroupMember
from millrace.client.groups import GroupMetadata
from millrace.errors import BrokerError, ClientError, MillraceError
from millrace_pipelines.mirror.clusters import ClusterLooks, SameClusterError, check_two_clusters
from millrace_pipelines.mirror.copying import Copying
from millrace_pipelines.mirror.counters import Counted
from millrace_pipelines.mirror.doors import copying_of, following_of
from millrace_pipelines.mirror.following import Following
from millrace_pipelines.mirror.keeping import TOPICS, Keeper
from millrace_pipelines.mirror.known_stops import keep_stops
from millrace_pipelines.mirror.loops import Begin, Surroundings
from millrace_pipelines.mirror.pauses import LAST_PAUSE_S
from millrace_pipelines.mirror.rights import TARGET, hidden, is_lasting, needing, reach, side_of
from millrace_pipelines.mirror.settings import MirrorSettings, Source, Way
from millrace_pipelines.mirror.sharing import PROTOCOL, PROTOCOL_TYPE, assign, decode_members, group_of, owner
from millrace_pipelines.mirror.states import STATES_TOPIC, State, States, TopicState
from millrace_pipelines.mirror.stops import Mirrored
from millrace_pipelines.mirror.telling import Troubles

logger = logging.getLogger(__name__)

LOOK_S = 1.0  # after which states and partitions are read again
FIRST_LOOK_S = 0.1  # also after which an instance sees that it is to end
SHARE_PATIENCE_S = 10.0  # a member that has died keeps the others waiting for no longer than its session
LOOPS = ("follow", "copy")
ISOLATIONS = {Way.FOLLOW: IsolationLevel.READ_UNCOMMITTED, Way.COPY: IsolationLevel.READ_COMMITTED}

Share = Mapping[Way, Mapping[Mirrored, Begin]]
"""The partitions of an instance, by how they are mirrored."""


class NoShareError(ClientError, retriable=True):
    """An instance waits for its share of the partitions, which the coordinator of its group has to give it."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"group {group}: no share of the partitions comes from its coordinator, a broker of the target; "
            "if that stays so, the broker's log may say why, and a restart of that broker helps"
        )


class Standing(NamedTuple):
    """How an instance stands among those of a source.

    Attributes:
        source: The source's name.
        has_share: Whether it has had its share of the partitions, be it none.
        leads: Whether it keeps topics and groups for all.
        throttled_s: How long the throttle has held it up.
    """

    source: str
    has_share: bool
    leads: bool
    throttled_s: float


class MirrorInstance:
    """One source in this instance; `start` returns at once, `stop` waits until all threads have ended."""

    def __init__(
        self, settings: MirrorSettings, source: Source, around: Surroundings, failed: Callable[[BaseException], None]
    ) -> None:
        self._settings = settings
        self._source = source
        self._around = around
        self._failed = failed
        self._groups = around.counters.groups_of(source.name)
        self._troubles = Troubles(around.tell, around.clock)
        self._once = False
        self._stopping, self._must_rejoin, self._leads = threading.Event(), threading.Event(), threading.Event()
        self._has_kept = threading.Event()
        self._threads: list[tuple[str, threading.Thread]] = []
        self._loops = ExitStack()
        self._following: Following | None = None
        self._copying: Copying | None = None
        self._ends: dict[Counted, int] | None = None
        self._mine: frozenset[Mirrored] = frozenset()
        self.states: dict[str, TopicState] = {}
        self.denied: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The source's name."""
        return self._source.name

    @property
    def ends(self) -> Mapping[Counted, int] | None:
        """Where the source's partitions ended at the first look, of those that this instance had then; None before."""
        return self._ends

    @property
    def standing(self) -> Standing:
        """How it stands among the source's instances."""
        return Standing(self.name, self._ends is not None, self._leads.is_set(), self._around.throttle.waited_s)

    def start(self, *, once: bool = False) -> None:
        """Starts the instance's first threads; with `once`, what only people can mend ends it."""
        self._once = once
        self._start("mirror", self._share)
        self._start("keep", self._keep)

    def stop(self) -> None:
        """Has all threads end, and waits for them: first the loops, which may still commit as a member of the group."""
        for event in (None, self._stopping):
            if event is not None:
                event.set()
            for loop in (self._following, self._copying):
                if loop is not None:
                    loop.stop()
            for role, thread in self._threads:
                if event is not None or role in LOOPS:
                    thread.join()
        self._loops.close()

    def is_done(self) -> bool:
        """Returns whether all that the source had at the first look is mirrored.

        What has stopped since does not count, nor what another instance has now.
        """
        if self._ends is None:
            return False
        lines = self._around.counters.read()
        for one, end in self._ends.items():
            line = lines.get(one)
            if one.what not in self._mine:
                continue
            has_ended = line is not None and (line.stop is not None or (self._once and line.is_lasting))
            if line is None or not (has_ended or (line.next_offset is not None and line.next_offset >= end)):
                return False
        return True

    def _start(self, role: str, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 -- whatever it is, the instance can't go on without it
                self._failed(error)

        thread = threading.Thread(target=run, name=f"{role}-{self.name}", daemon=True)
        self._threads.append((role, thread))
        thread.start()

    def _fails(self, about: str, error: MillraceError) -> None:
        if self._once and is_lasting(error):
            self._failed(error)
            return
        sides = () if isinstance(error, BrokerError) else (side_of(self.name), TARGET)
        self._troubles.fails(next((one for one in sides if str(error).startswith(f"{one}: ")), about), error)

    def _reach(self, source: Cluster, target: Cluster) -> None:
        for cluster, side in ((source, side_of(self.name)), (target, TARGET)):
            reach(cluster, side)
            self._troubles.works(side)

    # The group's member.

    def _share(self) -> None:
        pause_s = LOOK_S
        while not self._stopping.is_set():
            try:
                with self._settings.target.cluster() as target, self._source.cluster() as source:
                    self._reach(source, target)
                    check_two_clusters(self.name, source, target)
                    pause_s = LOOK_S
                    with needing(TARGET, group=f"Read on group {group_of(self.name)}"):
                        self._be_member(source, target)
            except SameClusterError:
                raise
            except MillraceError as error:
                self._fails(f"group {group_of(self.name)}", error)
                self._stopping.wait(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
            finally:
                self._leads.clear()
                self._let_go()

    def _be_member(self, source: Cluster, target: Cluster) -> None:
        """Stays a member of the source's group until the instance stops; raises what makes that impossible."""
        states = States(target)
        members: Sequence[str] = ()
        due_s, shared_s = 0.0, self._around.clock.monotonic_s()
        with GroupMember(
            target,
            group_of(self.name),
            protocol_type=PROTOCOL_TYPE,
            protocol=PROTOCOL,
            metadata=b"",
            assign=assign,
            on_revoked=self._let_go,
            session_timeout_ms=self._settings.session_timeout_ms,
        ) as member:
            while not self._stopping.is_set():
                if self._must_rejoin.is_set():
                    self._must_rejoin.clear()
                    member.rejoin(uuid.uuid4().bytes)  # other metadata, so that there is another generation
                assignment, now_s = member.poll(FIRST_LOOK_S), self._around.clock.monotonic_s()
                if assignment is not None:
                    members, due_s = decode_members(assignment), 0.0
                    self._troubles.works(f"group {group_of(self.name)}")
                if now_s < due_s:
                    continue
                due_s = now_s + (FIRST_LOOK_S if self._ends is None else LOOK_S)
                if not members or not member.is_current:
                    self._try_target(target, waited_s=now_s - shared_s)
                    continue
                shared_s = now_s
                self._leads.set() if member.is_leader else self._leads.clear()
                if self._has_kept.is_set() or not member.is_leader:
                    self._try_look(states, source, target, members, member.group_metadata)
                    self._keep_stops(states)
            self._keep_stops(states)

    def _try_target(self, target: Cluster, *, waited_s: float) -> None:
        """Tells why there is no assignment: the target can't be asked, or its coordinator gives none."""
        try:
            target.metadata([])
        except MillraceError as error:
            self._troubles.fails("the target", error)
            return
        self._troubles.works("the target")
        if waited_s > SHARE_PATIENCE_S:
            group = group_of(self.name)
            self._troubles.fails(f"group {group}", NoShareError(group))

    def _try_look(
        self, states: States, source: Cluster, target: Cluster, members: Iterable[str], group: GroupMetadata
    ) -> None:
        """Reads the states, and gives this member's partitions to the loops."""
        try:
            with needing(TARGET, topic=f"Read on topic {STATES_TOPIC}"):
                self.states = {one.topic: one for one in states.read().values() if one.source == self.name}
            mine = self._shared(source, target, members, group)
            self._give(mine, group)
            self._mine = frozenset().union(*mine.values())
            if self._ends is None:
                self._ends = self._read_ends(source, mine)
        except MillraceError as error:
            self._fails(f"topics of {self.name}", error)
        else:
            self._troubles.works(f"topics of {self.name}")

    def _keep_stops(self, states: States) -> None:
        about = f"stops of {self.name}"
        try:
            keep_stops(self._settings, self.name, self._around.counters.read(), states.known_stops())
        except MillraceError as error:
            self._troubles.fails(about, error)
        else:
            self._troubles.works(about)

    def _shared(self, source: Cluster, target: Cluster, members: Iterable[str], group: GroupMetadata) -> Share:
        """Returns the partitions that are this member's: those that both clusters have, of topics that are mirrored."""
        states = [one for one in self.states.values() if one.state is State.MIRRORING]
        mine: dict[Way, dict[Mirrored, Begin]] = {Way.FOLLOW: {}, Way.COPY: {}}
        if not states:
            return mine
        source_told = source.metadata([one.topic for one in states])
        target_told = target.metadata([one.target_topic for one in states])
        at_source, at_target = source_told.topics, target_told.topics
        self.denied = {}
        for one in states:
            error = hidden(source_told, one.topic, side_of(self.name)) or hidden(target_told, one.target_topic, TARGET)
            if error is not None:
                self.denied[one.key] = str(error)
                self._troubles.fails(f"topic {one.topic}", error)
            else:
                self._troubles.works(f"topic {one.topic}")
            if one.topic in at_source and one.target_topic in at_target:
                both = at_source[one.topic].partitions.keys() & at_target[one.target_topic].partitions.keys()
                for index in sorted(both):
                    if owner(members, one.topic, index) == group.member_id:
                        mine[one.way][Mirrored(one.topic, one.target_topic, index)] = self._begin(one, index)
        return mine

    def _begin(self, state: TopicState, partition: int) -> Begin:
        return Begin(
            start_offset=state.starts.get(partition, 0),
            source_topic_id=state.source_topic_id,
            target_topic_id=state.target_topic_id,
            accepted=state.accepted | self._settings.accepted,
            changed_ms=state.changed_ms,
        )

    def _give(self, mine: Share, group: GroupMetadata) -> None:
        settings, source, around = self._settings, self._source, self._around
        if mine[Way.FOLLOW] and self._following is None:
            with ExitStack() as opened:
                self._following = following_of(settings, source, around, opened)
                self._loops.push(opened.pop_all())
            self._start("follow", self._following.run)
        if mine[Way.COPY] and self._copying is None:
            with ExitStack() as opened:
                self._copying = copying_of(settings, source, around, opened, self._must_rejoin.set)
                self._loops.push(opened.pop_all())
            self._start("copy", self._copying.run)
        if self._following is not None:
            self._following.assign(mine[Way.FOLLOW])
        if self._copying is not None:
            self._copying.assign(mine[Way.COPY], group)

    def _read_ends(self, source: Cluster, mine: Share) -> dict[Counted, int]:
        """Returns where the source ends now; raises the error of a partition that does not tell."""
        found: dict[Counted, int] = {}
        for way, isolation in ISOLATIONS.items():
            ends = ClusterLooks(source, isolation, side_of(self.name)).ends([one.at_source for one in mine[way]])
            for what in mine[way]:
                end = ends[what.at_source]
                if isinstance(end, MillraceError):
                    raise end
                found[Counted(self.name, what)] = end.end_offset
        return found

    def _let_go(self) -> None:
        if self._following is not None:
            self._following.assign({})
        if self._copying is not None:
            self._copying.let_go()

    # What the group's leader keeps for all.

    def _keep(self) -> None:
        pause_s = LOOK_S
        while not self._stopping.is_set():
            try:
                with Keeper(self._settings, self._source, self._around.clock, self._groups.count) as keeper:
                    self._troubles.works(f"the keeper of {self.name}")
                    pause_s = LOOK_S
                    self._keep_with(keeper)
            except MillraceError as error:
                self._fails(f"the keeper of {self.name}", error)
                self._stopping.wait(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _keep_with(self, keeper: Keeper) -> None:
        while not self._stopping.is_set():
            if not self._leads.wait(FIRST_LOOK_S):
                continue
            for chore, error in keeper.keep().items():
                if error is not None:
                    self._fails(f"{chore} of {self.name}", error)
                    continue
                self._troubles.works(f"{chore} of {self.name}")
                if chore == TOPICS:
                    self._has_kept.set()
            self._stopping.wait(keeper.pause_s)
        if self._has_kept.is_set():
            self._keep_last(keeper)

    def _keep_last(self, keeper: Keeper) -> None:
        """Moves groups once more, to what was mirrored since."""
        try:
            keeper.keep_groups()
        except MillraceError as error:
            logger.warning("mirror %s: groups are not moved to the very end: %s", self.name, error)
