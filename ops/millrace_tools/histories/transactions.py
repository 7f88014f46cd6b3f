"""Isolation of transactions: what others see of them, and in which order they can have happened (Adya's G0, G1b, G1c).

G0 is a cycle of writes only (which transaction wrote behind which in a partition), G1c a cycle with reads (which read a
value of which). Transactions that are open at the same time may write to one partition in turn, so Kafka's logs do have
cycles of writes: where the caller allows them, G1c is looked for along reads only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from millrace_tools.histories.events import Action, Operation, Outcome, Poll
from millrace_tools.histories.finding import Anomaly, FoundAnomaly
from millrace_tools.histories.logs import PartitionLog

_Edges = dict[int, set[int]]  # an operation, and those that come before it


def intermediate_findings(operations: Sequence[Operation], logs: Mapping[str, PartitionLog]) -> Iterator[FoundAnomaly]:
    """Yields G1b: transactions of which something was read before they committed, or only a part."""
    for operation in operations:
        for poll in operation.polls():
            yield from _seen_in_part(operation, poll, logs[poll.partition])


def _seen_in_part(reader: Operation, poll: Poll, log: PartitionLog) -> Iterator[FoundAnomaly]:
    seen = {value for _, value in poll.records}
    for writer in _writers(poll, log, reader):
        if _is_before(reader.completed_ns, writer.committing_ns):
            message = f"{reader} read of {writer} before that was told to commit"
            yield FoundAnomaly(Anomaly.INTERMEDIATE_READ, log.name, message)
        within = range(poll.records[0][0], poll.records[-1][0] + 1)
        missing = [
            send.value
            for send in writer.sends()
            if send.partition == log.name and send.offset in within and send.value not in seen
        ]
        if missing:
            message = f"{reader} read a part of {writer}, without {missing[0]!r}"
            yield FoundAnomaly(Anomaly.INTERMEDIATE_READ, log.name, message)


def _is_before(completed_ns: int | None, committing_ns: int | None) -> bool:
    return completed_ns is not None and committing_ns is not None and completed_ns < committing_ns


def _writers(poll: Poll, log: PartitionLog, reader: Operation) -> list[Operation]:
    writers = {}
    for _, value in poll.records:
        writer = log.sender_of(value)
        if writer is not None and writer is not reader and writer.action is Action.TRANSACTION:
            writers[writer.index] = writer
    return list(writers.values())


def cycle_findings(
    operations: Sequence[Operation], logs: Mapping[str, PartitionLog], *, write_cycles_allowed: bool
) -> Iterator[FoundAnomaly]:
    """Yields G0 and G1c, one cycle of each."""
    writes, reads = _writes_before(logs), _reads_before(operations, logs)
    write_cycle = None if write_cycles_allowed else _cycle(writes)
    if write_cycle:
        yield _cycle_finding(Anomaly.WRITE_CYCLE, write_cycle, operations)
    cycle = _cycle(reads if write_cycle or write_cycles_allowed else _joined(writes, reads))
    if cycle:
        yield _cycle_finding(Anomaly.CIRCULAR_INFORMATION_FLOW, cycle, operations)


def _writes_before(logs: Mapping[str, PartitionLog]) -> _Edges:
    before: _Edges = defaultdict(set)
    for log in logs.values():
        last: Operation | None = None
        for offset in sorted(log.values):
            writer = log.sender_of(log.values[offset][0])
            if writer is None or writer.outcome is not Outcome.OK or not _is_atomic(writer):
                continue
            if last is not None and last is not writer:
                before[writer.index].add(last.index)
            last = writer
    return before


def _is_atomic(writer: Operation) -> bool:
    """Returns whether its sends have one place in an order: several sends outside of a transaction need not."""
    return writer.action is Action.TRANSACTION or sum(1 for _ in writer.sends()) == 1


def _reads_before(operations: Sequence[Operation], logs: Mapping[str, PartitionLog]) -> _Edges:
    before: _Edges = defaultdict(set)
    for reader in operations:
        for poll in reader.polls():
            for _, value in poll.records:
                writer = logs[poll.partition].sender_of(value)
                if writer is not None and writer is not reader:
                    before[reader.index].add(writer.index)
    return before


def _joined(writes: _Edges, reads: _Edges) -> _Edges:
    return {index: writes.get(index, set()) | reads.get(index, set()) for index in writes.keys() | reads.keys()}


def _cycle(before: _Edges) -> list[int]:
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        cycle: list[int] = error.args[1]
        return cycle
    return []


def _cycle_finding(anomaly: Anomaly, cycle: list[int], operations: Sequence[Operation]) -> FoundAnomaly:
    by_index = {operation.index: operation for operation in operations}
    return FoundAnomaly(anomaly, None, " before ".join(str(by_index[index]) for index in cycle))
