"""Appends of records that bring a sampled trace context, as spans (docs/tracing.md).

A broker that records spans has `TracedReplicaManager` in the place of `ReplicaManager`; other brokers run none of this
code. Compressed batches are decompressed, and those that have the name of the header in them are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.clock import Clock
from millrace.errors import MillraceError, RecordError
from millrace.records.batch import Buffer, walk
from millrace.records.record import decompress_body, records_of
from millrace.tracing import HEADER, Span, TraceContext, Tracing, sampled_contexts
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import AppendOutcome, LogManager, Prepared, TopicPartition

NAME = HEADER.encode()
LIMIT_BYTES = 16 << 20  # of a batch's decompressed records; a larger batch has no span


class TracedReplicaManager(ReplicaManager):
    """A replica manager that records a span for each produced batch with a sampled trace context."""

    def __init__(
        self, logs: LogManager, purgatory: Purgatory[TopicPartition], isr: IsrTables, tracing: Tracing, clock: Clock
    ) -> None:
        super().__init__(logs, purgatory, isr)
        self._tracing = tracing
        self._clock = clock

    def append_all(self, partition: Partition, appends: Sequence[Buffer | Prepared]) -> Sequence[AppendOutcome]:
        """Appends as the base class does, and records a span for each batch that has a sampled trace context."""
        started_ns = self._clock.now_ns()
        outcomes = super().append_all(partition, appends)
        ended_ns = self._clock.now_ns()
        for batches, outcome in zip(appends, outcomes, strict=True):
            contexts = contexts_of(batches.view if isinstance(batches, Prepared) else batches)
            if contexts:
                self._tracing.record(_span(partition, outcome, started_ns, ended_ns), contexts)
        return outcomes


def contexts_of(batches: Buffer) -> tuple[TraceContext, ...]:
    """Returns the sampled trace contexts in the headers of a batch's records; none if it can't be decoded."""
    try:
        return sampled_contexts(_traceparents(memoryview(batches)))
    except RecordError:
        return ()


def _traceparents(batches: memoryview) -> Iterator[bytes | None]:
    for position, header in walk(batches):
        body = decompress_body(header, batches[position : position + header.size_bytes], LIMIT_BYTES)
        if NAME in body:
            for record in records_of(header, body):
                yield from (value for name, value in record.headers if name == HEADER)


def _span(partition: Partition, outcome: AppendOutcome, started_ns: int, ended_ns: int) -> Span:
    topic, index = partition.log.topic_partition
    attributes: dict[str, str | int] = {
        "messaging.operation.name": "append",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(index),
    }
    if isinstance(outcome, MillraceError):
        return Span(f"append {topic}", started_ns, ended_ns, attributes, error=type(outcome).__name__)
    attributes["messaging.kafka.offset"] = outcome.first_offset
    attributes["messaging.batch.message_count"] = outcome.last_offset - outcome.first_offset + 1
    return Span(f"append {topic}", started_ns, ended_ns, attributes)
