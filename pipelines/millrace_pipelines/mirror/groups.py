"""Moves groups: their offsets at the source, translated, are committed at the target, and back again.

    offsets at the source ──► logs and maps ──► translated ──► group by group: members? plan (`group_plan`), commit

Groups of the classic protocol, of KIP-848, and those that ZooKeeper coordinates are moved alike. The offsets of the
last may be with the coordinator or in ZooKeeper; they are read and written in both where its address is known. What is
not done for one group, and why, is in its result; the others go on.

Between the question for a group's members and the commit lie two requests. A group that joins, reads, commits and
leaves within that time is set back to where it began: start a group at the target once it has stopped at the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from millrace.client.metadata import Partition
from millrace.errors import BrokerError, ErrorCode, GroupHasMembersError, MillraceError
from millrace_pipelines.mirror.group_plan import (
    Commits,
    Stored,
    Wanted,
    has_gone_on,
    plan_marks,
    plan_move,
    plan_move_back,
)
from millrace_pipelines.mirror.group_side import GroupSide
from millrace_pipelines.mirror.translation import Fit, Look, MirroredTopic, TranslatedOffset, Translator


class Outcome(StrEnum):
    """What became of a group."""

    MOVED = "moved"
    UNCHANGED = "unchanged"  # all of it is there
    GONE_ON = "gone on"  # it reads at the target, and is left alone
    HAS_MEMBERS = "has members"
    FAILED = "failed"


class GroupResult(NamedTuple):
    """What became of a group: its offsets on the other side, and what stood in the way of it or of partitions."""

    group_id: str
    outcome: Outcome
    offsets: Mapping[Partition, TranslatedOffset]
    errors: tuple[MillraceError, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do as long as the group's offsets stay as they are."""
        is_done = self.outcome in (Outcome.MOVED, Outcome.UNCHANGED) and not self.errors
        return is_done and all(one.fit is not Fit.AHEAD for one in self.offsets.values())


class GroupMoves:
    """Moves the groups of one mirror there and back.

    Args:
        mirror: The source's name.
        source: The source cluster.
        target: The target cluster.
        is_chosen: Whether a group is to be moved, by its name.
    """

    def __init__(
        self, mirror: str, source: GroupSide, target: GroupSide, *, is_chosen: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._mirror = mirror
        self._source = source
        self._target = target
        self._is_chosen = is_chosen
        self._translator = Translator(mirror, source.cluster, target.cluster)
        self._settled: dict[str, Mapping[Partition, Stored]] = {}

    def move(self, topics: Iterable[MirroredTopic], *, is_last: bool = False) -> list[GroupResult]:
        """Carries the groups' offsets to the target, as far as they are mirrored; a group that has gone on there stays.

        A group of which nothing has changed since the last call has no result.

        Args:
            topics: The mirrored topics.
            is_last: Whether the groups have stopped at the source. Then all are looked at, offsets in open
                transactions are waited for, and a group that still has members there is refused.
        """
        mirrored = list(topics)
        if is_last:
            self._settled.clear()
        names = {one.topic for one in mirrored}
        found: dict[str, Mapping[Partition, Stored]] = {}
        results: list[GroupResult] = []
        for group_id in self._chosen(self._source):
            try:
                stored = self._standing(group_id, names, is_last=is_last)
            except MillraceError as error:
                results.append(_refused(group_id, error))
            else:
                if stored and stored != self._settled.get(group_id):
                    found[group_id] = stored
        look = self._translator.to_target(mirrored, {one for stored in found.values() for one in stored})
        targets = {one.target_topic for one in mirrored}
        for group_id, stored in found.items():
            result = _tried(group_id, partial(self._move, group_id, stored, look, targets))
            if result.is_settled:
                self._settled[group_id] = stored
            results.append(result)
        return results

    def move_back(self, topics: Iterable[MirroredTopic]) -> list[GroupResult]:
        """Carries back to the source what groups without members have read at the target since they went on there.

        Only forwards of what the source has of them. Afterwards they can be moved over once more.
        """
        mirrored = list(topics)
        self._settled.clear()
        results = [_tried(one, partial(self._move_back, one, mirrored)) for one in self._chosen(self._target)]
        return [one for one in results if one.offsets or one.errors]

    def _chosen(self, side: GroupSide) -> list[str]:
        return sorted(filter(self._is_chosen, side.group_ids()))

    def _standing(self, group_id: str, topics: Iterable[str], *, is_last: bool) -> Mapping[Partition, Stored]:
        stored = self._source.stored(group_id, topics)
        if not stored or not is_last:
            return stored
        self._source.refuse_members(group_id)
        return self._source.stored(group_id, topics, stable=True)

    def _move(
        self, group_id: str, stored: Mapping[Partition, Stored], look: Look, targets: Iterable[str]
    ) -> GroupResult:
        standing = {one: at.furthest for one, at in stored.items()}
        offsets, errors = _parted(look.translate(standing))
        self._target.refuse_members(group_id)
        sources = {look.there(one): offset for one, offset in standing.items()}
        wanted = {one: Wanted(sources[one], to.offset) for one, to in offsets.items()}
        is_in_zookeeper = self._target.has_in_zookeeper(group_id) and _is_in_zookeeper(stored)
        commits = plan_move(
            self._mirror, wanted, self._target.stored(group_id, targets), is_in_zookeeper=is_in_zookeeper
        )
        if commits is None:
            return GroupResult(group_id, Outcome.GONE_ON, {})
        self._target.commit(group_id, commits)
        return _moved(group_id, commits, offsets, errors)

    def _move_back(self, group_id: str, mirrored: list[MirroredTopic]) -> GroupResult:
        self._target.refuse_members(group_id)
        found = self._target.stored(group_id, {one.target_topic for one in mirrored}, stable=True)
        gone_on = {one: at for one, at in found.items() if has_gone_on(at, self._mirror)}
        if not gone_on:
            return GroupResult(group_id, Outcome.UNCHANGED, {})
        self._source.refuse_members(group_id)
        look = self._translator.to_source(mirrored, gone_on)
        standing = {one: at.furthest for one, at in gone_on.items()}
        offsets, errors = _parted(look.translate(standing))
        places = {look.there(one): one for one in standing}
        wanted = {one: Wanted(to.offset, standing[places[one]]) for one, to in offsets.items()}
        is_in_zookeeper = self._source.has_in_zookeeper(group_id) and _is_in_zookeeper(gone_on)
        if is_in_zookeeper:
            self._source.fence(group_id, wanted)
        stored = self._source.stored(group_id, {one.topic for one in mirrored}, stable=True)
        commits = plan_move_back(wanted, stored, is_in_zookeeper=is_in_zookeeper)
        self._source.commit(group_id, commits)
        marked = {places[one]: each for one, each in wanted.items()}
        self._target.commit(group_id, plan_marks(self._mirror, marked, gone_on))
        return _moved(group_id, commits, offsets, errors)


def _tried(group_id: str, move: Callable[[], GroupResult]) -> GroupResult:
    try:
        return move()
    except MillraceError as error:
        return _refused(group_id, error)


def _is_in_zookeeper(stored: Mapping[Partition, Stored]) -> bool:
    return any(one.zookeeper is not None for one in stored.values())


def _parted(
    translated: Mapping[Partition, TranslatedOffset | MillraceError],
) -> tuple[dict[Partition, TranslatedOffset], tuple[MillraceError, ...]]:
    offsets = {one: to for one, to in translated.items() if not isinstance(to, MillraceError)}
    return offsets, tuple(to for to in translated.values() if isinstance(to, MillraceError))


def _moved(
    group_id: str, commits: Commits, offsets: Mapping[Partition, TranslatedOffset], errors: tuple[MillraceError, ...]
) -> GroupResult:
    if errors and not offsets:
        return GroupResult(group_id, Outcome.FAILED, {}, errors)
    return GroupResult(group_id, Outcome.MOVED if any(commits) else Outcome.UNCHANGED, offsets, errors)


def _refused(group_id: str, error: MillraceError) -> GroupResult:
    has_joined = isinstance(error, BrokerError) and error.broker_code == ErrorCode.UNKNOWN_MEMBER_ID
    is_busy = has_joined or isinstance(error, GroupHasMembersError)
    return GroupResult(group_id, Outcome.HAS_MEMBERS if is_busy else Outcome.FAILED, {}, (error,))
