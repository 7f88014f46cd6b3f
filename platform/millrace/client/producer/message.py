"""What goes into a producer and what comes out: a record, and the report of its delivery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from millrace.client.producer.batch import Batch
from millrace.clock import SystemClock
from millrace.errors import ClientError, DeliveryTimeoutError, MillraceError
from millrace.records.record import Header


class ProducerRecord(NamedTuple):
    """A record to be sent; its encoders make bytes of key and value, and a partitioner finds its partition."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


class DeliveryReport(NamedTuple):
    """Where a record lies, or why it does not.

    The offset is -1 where it is not known: with acks=0, or when a broker had the record from an earlier attempt.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    error: MillraceError | None = None


OnDelivery = Callable[[DeliveryReport], None]


class Delivery:
    """The report that will come; any thread may ask for it."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        return f"Delivery({self.report() if self.done() else 'pending'})"

    def done(self) -> bool:
        """Returns whether the record's fate is known."""
        batch, _ = self._batch.find(self._index)
        return batch.is_done and batch.parts is None

    def report(self, timeout_s: float | None = None) -> DeliveryReport:
        """Returns the report, with its error if there is one.

        Raises DeliveryTimeoutError if it does not come in time.
        """
        now_s = self._batch.clock.monotonic_s
        deadline_s = None if timeout_s is None else now_s() + timeout_s
        while True:
            batch, index = self._batch.find(self._index)
            if not batch.wait(None if deadline_s is None else max(deadline_s - now_s(), 0.0)):
                raise DeliveryTimeoutError(f"no report of a record for {batch.name} within {timeout_s} s")
            if batch.parts is None:
                return report_of(batch, index)

    def result(self, timeout_s: float | None = None) -> DeliveryReport:
        """Returns the report of a record that is in the log; else raises its error."""
        report = self.report(timeout_s)
        if report.error is not None:
            raise report.error
        return report


class HandedOver(Delivery):
    """What `send` returns where the application has handlers: only these hear of the record."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Batch("", -1, base_timestamp_ms=-1, ready_s=0.0, deadline_s=0.0, clock=SystemClock()), 0)

    def done(self) -> bool:
        """Returns False, as it is not known here."""
        return False

    def report(self, timeout_s: float | None = None) -> DeliveryReport:  # noqa: ARG002
        """Raises ClientError, as there is no report here."""
        raise ClientError("the producer's handlers hear of the record; there is no report of it")


HANDED_OVER = HandedOver()


def report_of(batch: Batch, index: int) -> DeliveryReport:
    """Returns the report of one record of a batch that is done."""
    offset = batch.base_offset + index if batch.base_offset >= 0 else -1
    timestamp_ms = batch.log_append_time_ms if batch.log_append_time_ms >= 0 else batch.timestamp_of(index)
    return DeliveryReport(batch.topic, batch.partition, offset, timestamp_ms, batch.error)
