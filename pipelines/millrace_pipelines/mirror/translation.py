"""Translates offsets of the source to offsets of the target, and back, for topics of either way.

    followed   the same offset, moved into the log that is there
    copied     by the offset map, which is exact (`offset_map`), moved up to the log start that is there

The mirror's progress and the ends of the logs are read before the maps: what has come meanwhile is then in a map, and
an offset is never moved below what was read already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from millrace.client import Cluster, Groups
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import Partition
from millrace.errors import MillraceError, UnknownTopicError
from millrace.records.batch import NO_OFFSET
from millrace_pipelines.mirror.offset_map import OffsetMap, OffsetMapError
from millrace_pipelines.mirror.offset_map_topic import OffsetMaps
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.sharing import group_of
from millrace_pipelines.mirror.states import State, States, TopicState


class Fit(StrEnum):
    """How well an offset could be translated."""

    EXACT = "exact"  # each record that was not read yet is there, and none that was
    DELETED = "deleted"  # the log that is there has deleted records that were not read yet: it begins here
    AHEAD = "ahead"  # more was read than there is: this is the end, and what comes may have been read


class TranslatedOffset(NamedTuple):
    """The offset of the next record to read on the other side, and how well it fits."""

    offset: int
    fit: Fit = Fit.EXACT


class MirroredTopic(NamedTuple):
    """A topic of the source, what it is called at the target, and whether it is followed or copied."""

    topic: str
    target_topic: str
    is_followed: bool


Translated: TypeAlias = TranslatedOffset | MillraceError


def mirrored_topics(states: Iterable[TopicState], mirror: str, *, also_switched: bool = True) -> list[MirroredTopic]:
    """Returns the topics of a mirror by their states, unless `also_switched` without those that were switched over."""
    return [
        MirroredTopic(one.topic, one.target_topic, one.way is Way.FOLLOW)
        for one in states
        if one.source == mirror and (also_switched or one.state is not State.SWITCHED)
    ]


def translate_offset(
    topic: str,
    partition: int,
    offset: int,
    mirror: str,
    *,
    source: Cluster | str,
    target: Cluster | str,
    back: bool = False,
) -> TranslatedOffset:
    """Returns the offset at the target for one of the source; with `back`, that at the source for one of the target.

        translate_offset("clicks", 0, 1234, "east", source="127.0.0.1:9092", target="127.0.0.1:9192")

    An offset is that of the next record to read, as groups commit it.

    Args:
        topic: The topic's name where the offset is from.
        partition: The partition.
        offset: The offset to translate.
        mirror: The name of the source.
        source: The source cluster, or `HOST:PORT,…` of its brokers.
        target: The target cluster, in the same way.
        back: Whether the offset is one of the target.

    Raises:
        UnknownTopicError: The mirror has no such topic, or one of the clusters no such partition.
        OffsetMapError: The offset map is damaged, or does not fit the topic any more.
        BrokerUnreachableError: No broker answers.
    """
    with _opened(source) as one, _opened(target) as other:
        found = _translated({(topic, partition): offset}, mirror, one, other, back=back)
    if not found:
        raise UnknownTopicError(f"the mirror {mirror} has no topic {topic} at its {'target' if back else 'source'}")
    return next(iter(found.values()))


def translate_group(
    group_id: str, mirror: str, *, source: Cluster | str, target: Cluster | str, back: bool = False
) -> dict[Partition, TranslatedOffset]:
    """Returns where at the target a group of the source goes on or, with `back`, where at the source one of the target.

        translate_group("billing", "east", source="127.0.0.1:9092", target="127.0.0.1:9192")

    By (topic, partition) of the other side, for each mirrored partition of which the group's coordinator has an offset.
    Arguments and errors are those of `translate_offset`.
    """
    with _opened(source) as one, _opened(target) as other:
        committed = Groups(other if back else one).offsets(group_id)
        return _translated({at: each.offset for at, each in committed.items()}, mirror, one, other, back=back)


def _translated(
    offsets: Mapping[Partition, int], mirror: str, source: Cluster, target: Cluster, *, back: bool
) -> dict[Partition, TranslatedOffset]:
    topics = mirrored_topics(States(target).read().values(), mirror)
    translator = Translator(mirror, source, target)
    look = (translator.to_source if back else translator.to_target)(topics, offsets)
    found: dict[Partition, TranslatedOffset] = {}
    for one, translated in look.translate(offsets).items():
        if isinstance(translated, MillraceError):
            raise translated
        found[one] = translated
    return found


def _opened(cluster: Cluster | str) -> AbstractContextManager[Cluster]:
    return nullcontext(cluster) if isinstance(cluster, Cluster) else Cluster(cluster)


class Translator:
    """Translates offsets of one mirror's topics; it reads on in its maps each time.

    Args:
        mirror: The source's name.
        source: The source cluster.
        target: The target cluster, which has the maps.
    """

    def __init__(self, mirror: str, source: Cluster, target: Cluster) -> None:
        self._source = source
        self._target = target
        self._group_id = group_of(mirror)
        self._maps = OffsetMaps(target, mirror)

    def to_target(self, topics: Iterable[MirroredTopic], partitions: Iterable[Partition]) -> Look:
        """Looks at partitions of the source, to translate their offsets; those of other topics are passed over."""
        return self._look({one.topic: one for one in topics}, partitions, is_back=False)

    def to_source(self, topics: Iterable[MirroredTopic], partitions: Iterable[Partition]) -> Look:
        """Looks at partitions of the target, to translate their offsets back."""
        return self._look({one.target_topic: one for one in topics}, partitions, is_back=True)

    def _look(self, topics: Mapping[str, MirroredTopic], partitions: Iterable[Partition], *, is_back: bool) -> Look:
        ways = {(topic, index): topics[topic] for topic, index in partitions if topic in topics}
        names = {one: (way.topic if is_back else way.target_topic, one[1]) for one, way in ways.items()}
        there = self._source if is_back else self._target
        copied = {(way.topic, index): way.target_topic for (_, index), way in ways.items() if not way.is_followed}
        progress = Groups(self._target).offsets(self._group_id) if copied else {}
        logs = read_log_offsets(there, dict.fromkeys(names.values()), IsolationLevel.READ_UNCOMMITTED)
        maps = self._maps.read(copied)
        for (topic, index), one in maps.items():
            if committed := progress.get((copied[topic, index], index)):
                one.next_source = max(one.next_source, committed.offset)
        found = {
            one: _Way(names[one], logs[names[one]], None if way.is_followed else maps[way.topic, one[1]])
            for one, way in ways.items()
        }
        grown = [way.there for way in found.values() if way.is_above_the_end(is_back=is_back)]
        logs |= read_log_offsets(there, grown, IsolationLevel.READ_UNCOMMITTED)
        return Look({one: way._replace(log=logs[way.there]) for one, way in found.items()}, is_back=is_back)


class _Way(NamedTuple):
    """The way of one partition to the other side; without a map it is followed."""

    there: Partition
    log: LogOffsets | MillraceError
    map: OffsetMap | None

    def is_above_the_end(self, *, is_back: bool) -> bool:
        """Returns whether the map goes on above the end that the log on the other side had a moment before."""
        last = self.map.last if self.map is not None else None
        if self.map is None or last is None or isinstance(self.log, MillraceError):
            return False
        return (self.map.next_source if is_back else last.target_end) > self.log.end_offset


class Look:
    """What was known of some partitions at one moment; translating by it asks nobody."""

    def __init__(self, ways: Mapping[Partition, _Way], *, is_back: bool) -> None:
        self._ways = ways
        self._is_back = is_back

    def there(self, partition: Partition) -> Partition:
        """Returns the partition on the other side."""
        return self._ways[partition].there

    def translate(self, offsets: Mapping[Partition, int]) -> dict[Partition, Translated]:
        """Returns by the partition on the other side the offset, or why it can't be told; others are left out."""
        wanted = {one: offset for one, offset in offsets.items() if one in self._ways and offset != NO_OFFSET}
        return {self._ways[one].there: self._translate(self._ways[one], offset) for one, offset in wanted.items()}

    def _translate(self, way: _Way, offset: int) -> Translated:
        if isinstance(way.log, MillraceError):
            return way.log
        if way.map is None:
            return in_log(offset, way.log)
        if self._is_back:
            return source_offset(offset, way.map, way.log)
        try:
            return target_offset(offset, way.map, way.log)
        except OffsetMapError as error:
            return OffsetMapError(f"{way.there[0]}-{way.there[1]}: {error}")


def in_log(offset: int, log: LogOffsets) -> TranslatedOffset:
    """Returns an offset moved into a log."""
    if offset > log.end_offset:
        return TranslatedOffset(log.end_offset, Fit.AHEAD)
    return TranslatedOffset(log.start_offset, Fit.DELETED) if offset < log.start_offset else TranslatedOffset(offset)


def target_offset(offset: int, offset_map: OffsetMap, log: LogOffsets) -> TranslatedOffset:
    """Returns the target's offset for one of the source, by the map and the log of the target.

    Raises OffsetMapError where the map leads above the end of the log.
    """
    mapped = offset_map.to_target(offset)
    found = in_log(log.end_offset if mapped is None else mapped, log)
    if found.fit is Fit.AHEAD:
        raise OffsetMapError(
            f"the offset map leads to offset {mapped}, and the log ends at {log.end_offset}: the topic was cut, or "
            "deleted and created again; the offsets of its groups have to be set by hand (millrace offsets reset)"
        )
    return found._replace(fit=Fit.AHEAD) if offset > offset_map.next_source else found


def source_offset(offset: int, offset_map: OffsetMap, log: LogOffsets) -> TranslatedOffset:
    """Returns the source's offset for one of the target, by the map and the log of the source.

    Of a partition of which nothing is mirrored nothing was read either.
    """
    mapped = offset_map.to_source(offset)
    return in_log(log.start_offset if mapped is None else mapped, log)
