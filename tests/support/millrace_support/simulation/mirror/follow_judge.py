"""What must hold of partitions that are followed, whatever fails; each violation is an anomaly in plain words.

- A batch that is committed at the target was committed at the source before, at the same offset, with the same bytes
  but for its leader epoch.
- In the end each target has all that its source has; what compaction has left out was compacted at the source.
- Nothing stops a partition but what is said: offsets that the source has deleted before they were mirrored, damage of
  what was fetched; and, where the source may have lost what was committed, a log that was cut. Where the logs differ
  then, it must have stopped.
- Of a topic that was deleted and created again, nothing is mirrored but what the former one had, and all have stopped.
- Where mirroring has ended, what lies behind it was written to the target alone, and below it are, behind the source's
  batches, an ABORT marker for each transaction that was open, and the batch that says so.

It shares no code with the mirror: it knows logs, and the histories of what readers of both clusters may have seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from millrace.records.batch import NO_PRODUCER_ID, read_header
from millrace.records.record import read_records
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.judge import batches
from millrace_support.simulation.mirror.cluster import SimulatedCluster
from millrace_support.simulation.mirror.mishaps import Mishaps
from millrace_support.simulation.mirror.settings import MirrorSettings
from millrace_support.simulation.workloads.drawn import COMPACTED_TOPIC
from millrace_support.simulation.workloads.history import EPOCH, History

PURGED, DAMAGED, RECREATED = "has deleted offsets", "is damaged", "created again"


def same(batch: bytes) -> bytes:
    """Returns what is the same in both clusters: all but the leader epoch."""
    return batch[: EPOCH.start] + batch[EPOCH.stop :]


class FollowJudge:
    """Looks at both clusters while they run, and at the end.

    `ends` are the offsets behind the ends of mirroring, `histories` those of partitions that the source has deleted.
    """

    def __init__(
        self, source: SimulatedCluster, target: SimulatedCluster, settings: MirrorSettings, mishaps: Mishaps
    ) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.histories: dict[TopicPartition, History] = {}
        self.stops: dict[TopicPartition, list[str]] = defaultdict(list)
        self._source = source
        self._target = target
        self._accepts_loss = settings.accepts_loss
        self._mishaps = mishaps
        self._lossy: set[TopicPartition] = set()
        self._anomaly = source.judge.anomaly
        self._looked_to: dict[TopicPartition, int] = defaultdict(int)
        self._mirrored_to: dict[TopicPartition, int] = {}
        self._is_ending: set[TopicPartition] = set()

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

    def ending(self, key: TopicPartition) -> None:
        """Notes that the mirroring into a partition is about to end."""
        self._is_ending.add(key)

    def look(self) -> None:
        """Compares what has been committed since the last look."""
        self._source.look()
        self._target.look()
        for key, history in self._target.judge.histories.items():
            if key not in self._source.judge.histories or key.topic.startswith("__"):
                continue
            if self._is_lossy(key) or key in self._is_ending:
                continue
            known = list(history.batches.items())
            for offset, batch in known[self._looked_to[key] :]:
                self._compare(key, offset, batch)
                self._check_gap(key, offset)
                self._mirrored_to[key] = read_header(batch).next_offset
            self._looked_to[key] = len(known)

    def _compare(self, key: TopicPartition, offset: int, batch: bytes) -> None:
        history = self._history(key)
        if key.topic == COMPACTED_TOPIC:
            self._compare_records(key, batch)
        elif offset not in history.batches:
            self._anomaly(f"{key}: the target has committed what the source has not at offset {offset}")
        elif same(history.batches[offset]) != same(batch):
            self._anomaly(f"{key}: the target has another batch than the source at offset {offset}")

    def _check_gap(self, key: TopicPartition, offset: int) -> None:
        """Looks whether a batch follows the one before; a first one may lie anywhere, where the source began then."""
        before = self._mirrored_to.get(key, offset)
        may_have_gaps = key.topic == COMPACTED_TOPIC or self._accepts_loss or self._target.promises.is_void(key)
        if offset != before and not may_have_gaps:
            self._anomaly(f"{key}: offsets {before} to {offset} are missing at the target, which nobody has accepted")

    def _compare_records(self, key: TopicPartition, batch: bytes) -> None:
        header, history = read_header(batch), self._history(key)
        if header.next_offset > history.end:
            self._anomaly(f"{key}: the target has committed what the source has not at offset {header.base_offset}")
        for record in () if header.is_control else read_records(memoryview(batch)):
            if history.records.get(record.offset) != record:
                self._anomaly(f"{key}: the target has another record than the source at offset {record.offset}")

    # The end.

    def is_done(self, key: TopicPartition, instances: int) -> bool:
        """Returns whether all that the source has is there, or each instance has stopped.

        Of a source whose records are all deleted nothing comes, so that the target may end below it. Where the source
        was cut and has other records, somebody has to see that first.
        """
        if key in self.ends or len(self.stops[key]) >= instances:
            return True
        if key in self.histories:
            return False
        theirs, ours = (cluster.log_of(key) for cluster in (self._source, self._target))
        if theirs is None or ours is None:
            return False
        if self._is_lossy(key) and self._differs(key):
            return False
        is_empty = theirs.log_start_offset == theirs.log_end_offset
        return bool(ours.log_end_offset == theirs.log_end_offset or (is_empty and self._accepts_loss))

    def check(self, key: TopicPartition) -> None:
        """Compares the logs of a partition once all has healed."""
        theirs, ours = self._log(self._source, key), self._log(self._target, key)
        self._check_stops(key)
        if key in self.ends:
            self._check_end(key, theirs, ours)
        elif key in self.histories:
            self._check_recreated(key, ours)
        elif self._is_lossy(key):
            self._check_after_loss(key)
        else:
            self._check_all(key, theirs, ours)

    @staticmethod
    def _log(cluster: SimulatedCluster, key: TopicPartition) -> dict[int, bytes]:
        log: Any = cluster.log_of(key)
        return dict(batches(log, log.log_start_offset, log.log_end_offset))

    def _start(self, cluster: SimulatedCluster, key: TopicPartition) -> int:
        return int(cluster.log_of(key).log_start_offset)

    def _check_stops(self, key: TopicPartition) -> None:
        for reason in self.stops[key]:
            is_right = (
                self._is_lossy(key)
                or (DAMAGED in reason and key in self._mishaps.damaged)
                or (RECREATED in reason and key in self.histories)
                or (PURGED in reason and self._start(self._source, key) > 0)
                or key in self._is_ending
            )
            if not is_right:
                self._anomaly(f"{key} has stopped without a reason: {reason}")

    def _check_recreated(self, key: TopicPartition, ours: Mapping[int, bytes]) -> None:
        """Looks whether a topic that was deleted and created again is told, and nothing of the new one is mirrored."""
        if not self.stops[key]:
            self._anomaly(f"{key}: the source's topic is another one, and nobody has told it")
        for offset, batch in ours.items() if not self._is_lossy(key) else ():
            self._compare(key, offset, batch)

    def _check_all(self, key: TopicPartition, theirs: Mapping[int, bytes], ours: Mapping[int, bytes]) -> None:
        for offset, batch in ours.items():
            self._compare(key, offset, batch)
        if self.stops[key]:
            return
        begin = max(self._start(self._source, key), self._start(self._target, key))
        if key.topic == COMPACTED_TOPIC:
            self._check_records(key, theirs)
        elif lost := [offset for offset in theirs if offset >= begin and offset not in ours]:
            self._anomaly(f"{key}: offsets {lost} are lost at the target")

    def _check_records(self, key: TopicPartition, theirs: Mapping[int, bytes]) -> None:
        """Looks whether the target has seen all records that the source still has; what it compacts is judged alone.

        It may have compacted some before anybody looked, which newer ones of their keys show.
        """
        history = self._target.judge.histories[key]
        seen = history.records
        newest = {one.key: one.offset for _, one in sorted(seen.items()) if history.is_committed(one.offset)}
        for batch in theirs.values():
            records = [] if read_header(batch).is_control else read_records(memoryview(batch))
            lost = [one.offset for one in records if one.offset not in seen and newest.get(one.key, -1) < one.offset]
            if lost and not self._target.promises.is_void(key):
                self._anomaly(f"{key}: records at {lost} are lost at the target")

    def _differs(self, key: TopicPartition) -> bool:
        """Returns whether the logs of a partition that nothing compacts differ where both have something."""
        begin = max(self._start(self._source, key), self._start(self._target, key))
        one, other = (
            {offset: same(batch) for offset, batch in self._log(cluster, key).items() if offset >= begin}
            for cluster in (self._source, self._target)
        )
        return key.topic != COMPACTED_TOPIC and one != other

    def _check_after_loss(self, key: TopicPartition) -> None:
        """Looks whether a source that was cut is told where it matters."""
        if not self.stops[key] and self._differs(key):
            self._anomaly(f"{key}: the target differs from a source that was cut, and nobody has told it")

    def _check_end(self, key: TopicPartition, theirs: Mapping[int, bytes], ours: Mapping[int, bytes]) -> None:
        if self._target.promises.is_void(key):
            return
        end = self.ends[key]
        history = self._history(key).batches
        below = {offset: batch for offset, batch in ours.items() if offset < end}
        own = [
            batch
            for offset, batch in below.items()
            if same(history.get(offset, theirs.get(offset, b""))) != same(batch)
        ]
        headers = [read_header(batch) for batch in own]
        is_ended = headers and headers[-1].next_offset == end and headers[-1].producer_id == NO_PRODUCER_ID
        if not is_ended and self._start(self._target, key) < end:
            self._anomaly(f"{key}: the batch that ends the mirroring is not at offset {end - 1}")
        outcomes = self._target.judge.histories[key].outcomes
        if undecided := [offset for offset, outcome in outcomes.items() if offset < end and outcome is None]:
            self._anomaly(f"{key}: the transaction of offsets {undecided} is open behind the end of mirroring")
        is_exact = key.topic != COMPACTED_TOPIC and not self._is_lossy(key)
        if is_exact and not all(header.is_control for header in headers):
            self._anomaly(f"{key}: below the end of mirroring is what the source has not committed")
