"""Markers that end transactions, appended to a log as a coordinator does."""

from __future__ import annotations

from millrace.records.control import EndTransactionMarker, encode_marker
from millrace_broker.storage import AppendOrigin, Log, LogAppendInfo


def append_marker(
    log: Log, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, leader_epoch: int
) -> LogAppendInfo:
    """Appends a marker at the time of the log's clock."""
    batch = encode_marker(
        marker,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=log._clock.now_ms(),  # noqa: SLF001
    )
    return log.append(batch, leader_epoch=leader_epoch, origin=AppendOrigin.COORDINATOR)
