"""What must hold of partitions that are copied, whatever fails; each violation is an anomaly in plain words.

- The committed records of the target are those of the source, in its order, none twice, and none that was aborted, is
  open or is not committed yet. None is missing among them, but what the source has compacted, and what it has deleted
  where that is accepted.
- In the end all are there up to where readers of committed records end at the source, and the progress is there: at
  the end of its log, or at a transaction that is open for ever, as its coordinator has lost it.
- Each committed record of the target is in one run of the offset map, at the offset that it has in the source.
- Of a topic that was deleted and created again nothing is copied but what the former one had, and it has stopped.
- Where the source may have lost what was committed, the target has what it has now, or the mirror has said so; but for
  transactions that it had aborted, and has committed since.

It shares no code with the mirror: it reads keys and values of the map by itself.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from millrace.records.record import Record
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.judge import batches
from millrace_support.simulation.mirror.cluster import SimulatedCluster
from millrace_support.simulation.mirror.mishaps import Mishaps
from millrace_support.simulation.mirror.settings import MAP_TOPIC, MirrorSettings, Upheaval
from millrace_support.simulation.workloads.drawn import COMPACTED_TOPIC, LIMITED_TOPIC, OFFSETS, TRANSACTIONS
from millrace_support.simulation.workloads.history import History

MAP = TopicPartition(MAP_TOPIC, 0)
KEY_HEAD = struct.Struct(">BHHiq")
PURGED, DAMAGED, RECREATED = "has deleted offsets", "is damaged", "created again"
FOREIGN = "has no progress"


def same(record: Record) -> tuple[object, ...]:
    """Returns what a record has in both clusters: all but its offset."""
    return record.key, record.value, record.timestamp_ms, tuple(record.headers)


class CopyJudge:
    """Looks at both clusters while they run, and at the end.

    `histories` are those of partitions that the source has deleted.
    """

    def __init__(
        self, source: SimulatedCluster, target: SimulatedCluster, settings: MirrorSettings, mishaps: Mishaps
    ) -> None:
        self.histories: dict[TopicPartition, History] = {}
        self.stops: dict[TopicPartition, list[str]] = defaultdict(list)
        self._source = source
        self._target = target
        self._accepts_loss = settings.accepts_loss
        self._is_forgotten = settings.upheaval is Upheaval.FORGOTTEN
        self._mishaps = mishaps
        self._lossy: set[TopicPartition] = set()
        self._anomaly = source.judge.anomaly

    def stopped(self, key: TopicPartition, reason: str) -> None:
        """Notes that an instance mirrors a partition no more."""
        self.stops[key].append(reason)

    def recreated(self, keys: Iterable[TopicPartition]) -> None:
        """Notes that the source deletes partitions, of which the mirror is to have nothing but what they had."""
        self.look()
        self._lossy |= set(filter(self._source.promises.is_void, keys))
        self.histories |= {key: self._source.judge.histories[key] for key in keys}

    def _history(self, key: TopicPartition) -> History:
        """Returns what the source has had in the partition that is mirrored."""
        return self.histories.get(key) or self._source.judge.histories[key]

    def _is_lossy(self, key: TopicPartition) -> bool:
        """Returns whether the source may have lost what was committed in the partition that is mirrored."""
        return key in self._lossy if key in self.histories else self._source.promises.is_void(key)

    def is_void(self, key: TopicPartition) -> bool:
        """Returns whether nothing is promised of a partition at the target, or of what mirrors need there."""
        return any(map(self._target.promises.is_void, (key, OFFSETS, TRANSACTIONS, MAP)))

    def end(self, key: TopicPartition) -> int:
        """Returns where readers of committed records end at the source, as its log says."""
        log: Any = self._source.log_of(key)
        outcomes, log_end = self._now(key).outcomes, int(log.log_end_offset)
        if self._is_lossy(key):  # a transaction whose coordinator has lost it stays open, even if it is deleted
            log_end = max(log.producers.first_unstable_offset(log_end), log.log_start_offset)
        return min((offset for offset, outcome in outcomes.items() if outcome is None), default=log_end)

    def look(self) -> None:
        """Lets both clusters be looked at: what is committed is compared at the end."""
        self._source.look()
        self._target.look()

    def check(self, key: TopicPartition) -> None:
        """Compares what is committed in both clusters once all has healed."""
        for reason in self.stops[key]:
            if not (self._is_lossy(key) or self.is_void(key) or self._is_right(key, reason)):
                self._anomaly(f"{key} has stopped without a reason: {reason}")
        if self.is_void(key):
            return
        if key in self.histories and not self.stops[key]:
            self._anomaly(f"{key}: the source's topic is another one, and nobody has told it")
        if self._is_lossy(key):
            self._check_after_loss(key)
            return
        theirs = [one for one in self._history(key).visible(committed=True) if self._is_below(key, one)]
        ours = list(self._target.judge.histories[key].visible(committed=True))
        pairs = self._paired(key, theirs, ours)
        if len(pairs) == len(ours):
            self._check_missing(key, theirs, {one.offset for one, _ in pairs})
            self._check_map(key, {mine.offset: one.offset for one, mine in pairs})

    def _is_right(self, key: TopicPartition, reason: str) -> bool:
        """Returns whether a partition may have stopped for this reason."""
        return (
            (PURGED in reason and self._source.log_of(key).log_start_offset > 0)
            or (DAMAGED in reason and key in self._mishaps.damaged)
            or (RECREATED in reason and key in self.histories)
            or (FOREIGN in reason and self._is_forgotten)
        )

    def _is_below(self, key: TopicPartition, one: Record) -> bool:
        """Returns whether readers of committed records get so far; those of a deleted topic have got all."""
        return key in self.histories or one.offset < self.end(key)

    def _paired(self, key: TopicPartition, theirs: list[Record], ours: list[Record]) -> list[tuple[Record, Record]]:
        """Returns each record of the target with that of the source, in the order of both."""
        found: list[tuple[Record, Record]] = []
        rest = iter(theirs)
        for mine in ours:
            one = next((one for one in rest if same(one) == same(mine)), None)
            if one is None:
                self._anomaly(f"{key}: the target's record at {mine.offset} is there twice, early, or not the source's")
                return found
            found.append((one, mine))
        return found

    def _check_missing(self, key: TopicPartition, theirs: list[Record], copied: set[int]) -> None:
        left = self._left(key)
        start = self._source.log_of(key).log_start_offset
        first = min(copied, default=start)
        for one in theirs:
            is_behind = one.offset > max(copied, default=-1)
            if one.offset in copied or (self.stops[key] and is_behind):
                continue
            is_deleted = one.offset < start and (self._accepts_loss or one.offset < first)
            is_compacted = key.topic == COMPACTED_TOPIC and one.offset not in left
            if not is_deleted and not is_compacted:
                self._anomaly(f"{key}: the source's record at {one.offset} is lost at the target")
                return

    def _left(self, key: TopicPartition) -> dict[int, Record]:
        found = self.histories.get(key) or self._now(key)
        return {one.offset: one for one in found.visible(committed=True) if self._is_below(key, one)}

    def _now(self, key: TopicPartition) -> History:
        """Returns what the source has now."""
        now, log = History(key, lambda _: None, None), self._source.log_of(key)
        for offset, batch in batches(log, log.log_start_offset, log.log_end_offset):
            now.sees(offset, batch, "the source")
        return now

    def _check_after_loss(self, key: TopicPartition) -> None:
        if self.stops[key] or key.topic in (COMPACTED_TOPIC, LIMITED_TOPIC):
            return
        left, excused = self._left(key), self._decided_again(key)
        theirs = [same(one) for one in left.values() if same(one) not in excused]
        visible = self._target.judge.histories[key].visible(committed=True)
        ours = [same(one) for one in visible if same(one) not in excused]
        if self._source.log_of(key).log_start_offset:  # of what is deleted nobody can tell that it had been replaced
            ours = ours[max(len(ours) - len(theirs), 0) :]
        if ours != theirs:
            self._anomaly(f"{key}: the target differs from a source that was cut, and nobody has told it")

    def _decided_again(self, key: TopicPartition) -> set[tuple[object, ...]]:
        """Returns records of transactions that were ended before the source lost that, and have another end now.

        Where a log goes on behind such records, and before the marker, nothing of it tells that they were passed over,
        or taken.
        """
        before, now = self._source.judge.histories[key], self._now(key).outcomes
        return {
            same(one)
            for offset, one in before.records.items()
            if before.outcomes.get(offset) is False or (before.outcomes.get(offset) and now.get(offset) is False)
        }

    # The offset map.

    def _check_map(self, key: TopicPartition, source_of: dict[int, int]) -> None:
        mapped: dict[int, int] = {}
        for record in self._target.judge.histories[MAP].visible(committed=True):
            for target, source in _mapped(key, record):
                if mapped.setdefault(target, source) != source:
                    self._anomaly(f"{key}: the offset map has target offset {target} twice")
        if mapped != source_of:
            wrong = sorted(offset for offset, _ in mapped.items() ^ source_of.items())
            self._anomaly(f"{key}: the offset map is wrong at target offsets {wrong}")


def _mapped(key: TopicPartition, record: Record) -> Iterator[tuple[int, int]]:
    """Yields the target offsets of a record of the map with their source offsets, if they are of this partition."""
    assert record.key is not None
    assert record.value is not None
    _, mirror_bytes, topic_bytes, partition, _ = KEY_HEAD.unpack_from(record.key)
    names = record.key[KEY_HEAD.size :]
    if (names[mirror_bytes : mirror_bytes + topic_bytes].decode(), partition) != key:
        return
    numbers = _numbers(record.value[1:])
    next(numbers)
    source = target = 0
    for _ in range(next(numbers)):
        source, target, length = source + next(numbers), target + next(numbers), next(numbers)
        yield from ((target + index, source + index) for index in range(length))
        source, target = source + length, target + length


def _numbers(data: bytes) -> Iterator[int]:
    """Yields zig-zag varints."""
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield (value >> 1) ^ -(value & 1)
            value = shift = 0
