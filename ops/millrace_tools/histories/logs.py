"""The logs of a history's partitions: which value is at which offset, who sent it, and whether it was read.

An offset is known from an acknowledgement or from a poll. A value may have been sent more than once (by a loop that
retries after an abort); it counts as acknowledged where one of its sends was, as aborted where all of them failed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from millrace_tools.histories.events import Operation, Outcome, Value
from millrace_tools.histories.finding import Anomaly, FoundAnomaly


class PartitionLog:
    """What is known of one partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.senders: dict[Value, list[Operation]] = defaultdict(list)
        self.values: dict[int, list[Value]] = defaultdict(list)
        self.offsets: dict[Value, list[int]] = defaultdict(list)
        self.read: set[Value] = set()
        self.last_read = -1

    def note(self, offset: int, value: Value) -> None:
        """Notes that a value was seen at an offset."""
        if value not in self.values[offset]:
            self.values[offset].append(value)
            self.offsets[value].append(offset)

    def acknowledged(self, value: Value) -> bool:
        """Returns whether one of its sends was certainly done."""
        return any(sender.outcome is Outcome.OK for sender in self.senders[value])

    def aborted(self, value: Value) -> bool:
        """Returns whether it was sent and every send of it certainly failed."""
        senders = self.senders.get(value, [])
        return bool(senders) and all(sender.outcome is Outcome.FAIL for sender in senders)

    @cached_property
    def visible(self) -> list[int]:
        """The offsets, in order, that a reader of committed records must meet: acknowledged, or read by any process."""
        return sorted(
            offset
            for offset, values in self.values.items()
            if any(value in self.read or self.acknowledged(value) for value in values)
        )

    def between(self, after: int, before: int) -> list[int]:
        """Returns the visible offsets that lie strictly between two."""
        return self.visible[bisect_left(self.visible, after + 1) : bisect_left(self.visible, before)]

    def sender_of(self, value: Value) -> Operation | None:
        """Returns the operation that wrote the value, where only one can have written it."""
        able = [sender for sender in self.senders.get(value, []) if sender.outcome is not Outcome.FAIL]
        return able[0] if len(able) == 1 else None


class _Logs(dict[str, PartitionLog]):
    """Logs by their partitions' names, each made when it is first asked for."""

    def __missing__(self, name: str) -> PartitionLog:
        log = self[name] = PartitionLog(name)
        return log


def logs_of(operations: Iterable[Operation]) -> dict[str, PartitionLog]:
    """Returns the logs of a history's partitions, by their names."""
    logs = _Logs()
    for operation in operations:
        for send in operation.sends():
            log = logs[send.partition]
            log.senders[send.value].append(operation)
            if send.offset is not None and operation.outcome is Outcome.OK:
                log.note(send.offset, send.value)
        for poll in operation.polls():
            log = logs[poll.partition]
            for offset, value in poll.records:
                log.note(offset, value)
                log.read.add(value)
                log.last_read = max(log.last_read, offset)
    return logs


def log_findings(log: PartitionLog) -> Iterator[FoundAnomaly]:
    """Yields the anomalies that one partition's content shows by itself."""
    for offset, values in log.values.items():
        if len(values) > 1:
            yield FoundAnomaly(Anomaly.INCONSISTENT_OFFSET, log.name, f"offset {offset} has {_listed(values)}")
    for value, offsets in log.offsets.items():
        if len(offsets) > 1:
            yield FoundAnomaly(Anomaly.DUPLICATE, log.name, f"{value!r} is at the offsets {_listed(sorted(offsets))}")
    for value in log.read:
        if value not in log.senders:
            yield FoundAnomaly(Anomaly.PHANTOM, log.name, f"{value!r} was read, and no one sent it")
        elif log.aborted(value):
            yield FoundAnomaly(Anomaly.ABORTED_READ, log.name, f"{value!r} was read, though its send failed")
    yield from _not_read(log)


def _not_read(log: PartitionLog) -> Iterator[FoundAnomaly]:
    for value in log.senders:
        if value in log.read or not log.acknowledged(value):
            continue
        offset = min(log.offsets.get(value, [-1]))
        if log.last_read > offset:
            at = f"at offset {offset}" if offset >= 0 else "at an offset that was not told"
            message = f"{value!r}, acknowledged {at}, was never read; offset {log.last_read} was"
            yield FoundAnomaly(Anomaly.LOST_WRITE, log.name, message)
        else:
            yield FoundAnomaly(Anomaly.UNSEEN, log.name, f"{value!r}, acknowledged at offset {offset}, was never read")


def _listed(things: Iterable[object]) -> str:
    return ", ".join(repr(thing) for thing in things)
