"""Orders that a log keeps: the order of one process's polls, of its sends, and of all sends in real time.

A poll goes on where the process's last poll of the partition ended, unless it was assigned or subscribed again in
between. `internal` means within one operation, `external` from one to the next.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from millrace_tools.histories.events import Action, Operation, Outcome
from millrace_tools.histories.finding import Anomaly, FoundAnomaly
from millrace_tools.histories.logs import PartitionLog


@dataclass(frozen=True, slots=True)
class _Position:
    """The last offset that a process read of, or wrote to, a partition, and in which operation."""

    offset: int
    operation: Operation


_Positions = dict[tuple[str, str], _Position]  # by process and partition


def poll_findings(operations: Sequence[Operation], logs: Mapping[str, PartitionLog]) -> Iterator[FoundAnomaly]:
    """Yields polls that skipped offsets, and polls that went back."""
    positions: _Positions = {}
    for operation in operations:
        if operation.action in (Action.ASSIGN, Action.SUBSCRIBE):
            _forget(positions, operation)
        for poll in operation.polls():
            for offset, _ in poll.records:
                key = operation.process, poll.partition
                last, here = positions.get(key), _Position(offset, operation)
                if last is not None:
                    yield from _poll_finding(logs[poll.partition], last, here)
                positions[key] = here


def _forget(positions: _Positions, operation: Operation) -> None:
    for process, partition in list(positions):
        if process == operation.process and (not operation.partitions or partition in operation.partitions):
            del positions[process, partition]


def _poll_finding(log: PartitionLog, last: _Position, here: _Position) -> Iterator[FoundAnomaly]:
    where = _where(last, here)
    if here.offset <= last.offset:
        message = f"{here.operation} read offset {here.offset} after {last.offset} ({where})"
        yield FoundAnomaly(Anomaly.NON_MONOTONIC_POLL, log.name, message)
    elif skipped := log.between(last.offset, here.offset):
        count = f"{len(skipped)} offset{'s' if len(skipped) > 1 else ''} from {skipped[0]} on"
        message = f"{here.operation} went from offset {last.offset} to {here.offset} past {count} ({where})"
        yield FoundAnomaly(Anomaly.POLL_SKIP, log.name, message)


def _where(last: _Position, here: _Position) -> str:
    return "internal" if last.operation is here.operation else "external"


def send_findings(operations: Sequence[Operation]) -> Iterator[FoundAnomaly]:
    """Yields values that one process sent in one order and the log has in another."""
    positions: _Positions = {}
    for operation in operations:
        if operation.outcome is not Outcome.OK:
            continue
        for send in operation.sends():
            if send.offset is None:
                continue
            key, here = (operation.process, send.partition), _Position(send.offset, operation)
            last = positions.get(key)
            if last is not None and here.offset <= last.offset:
                message = f"{operation} sent to offset {here.offset} after {last.offset} ({_where(last, here)})"
                yield FoundAnomaly(Anomaly.NON_MONOTONIC_SEND, send.partition, message)
            positions[key] = here


def real_time_findings(operations: Sequence[Operation]) -> Iterator[FoundAnomaly]:
    """Yields sends that began after others were acknowledged, but lie before them in the log."""
    written: dict[str, list[tuple[int, int, Operation]]] = defaultdict(list)  # lowest and highest offset
    for operation in operations:
        if operation.outcome is Outcome.OK and operation.completed_ns is not None:
            for partition, offsets in _offsets(operation).items():
                written[partition].append((min(offsets), max(offsets), operation))
    for partition, spans in written.items():
        yield from _out_of_time(partition, spans)


def _offsets(operation: Operation) -> dict[str, list[int]]:
    offsets: dict[str, list[int]] = defaultdict(list)
    for send in operation.sends():
        if send.offset is not None:
            offsets[send.partition].append(send.offset)
    return offsets


def _out_of_time(partition: str, spans: list[tuple[int, int, Operation]]) -> Iterator[FoundAnomaly]:
    pending: list[tuple[int, int, Operation]] = []  # by their ends: completed_ns, index, operation
    highest: dict[int, int] = {}
    last: tuple[int, Operation] | None = None
    for lowest_offset, highest_offset, operation in sorted(spans, key=lambda span: span[2].invoked_ns):
        while pending and pending[0][0] < operation.invoked_ns:
            _, index, ended = heapq.heappop(pending)
            if last is None or highest[index] > last[0]:
                last = highest[index], ended
        if last is not None and lowest_offset < last[0]:
            message = f"{operation} sent to offset {lowest_offset} after {last[1]} had been told offset {last[0]}"
            yield FoundAnomaly(Anomaly.REAL_TIME_ORDER, partition, message)
        highest[operation.index] = highest_offset
        heapq.heappush(pending, (operation.completed_ns or 0, operation.index, operation))
