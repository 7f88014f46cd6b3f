"""Decodes records of `__transaction_state` for `millrace dump` (docs/formats/transaction-state.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.json_values import JsonObject
    from millrace.records.record import Record


def transaction_of(record: Record) -> JsonObject:
    """Returns the transactional id of a record and its transaction, None for a tombstone; raises CorruptRecordError."""
    from millrace.errors import CorruptRecordError
    from millrace_broker.txns.records import read_key, read_value

    transactional_id = None if record.key is None else read_key(record.key)
    if transactional_id is None:
        raise CorruptRecordError(f"the record at offset {record.offset} has no transactional id for a key")
    shown: JsonObject = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "transactional_id": transactional_id,
    }
    if record.value is None:
        return {**shown, "state": None}
    kept = read_value(record.value)
    return {
        **shown,
        "state": str(kept.state),
        "producer_id": kept.producer_id,
        "producer_epoch": kept.producer_epoch,
        "timeout_ms": kept.timeout_ms,
        "partitions": [f"{topic}-{index}" for topic, index in sorted(kept.partitions)],
        "start_timestamp": kept.start_timestamp_ms,
        "last_update_timestamp": kept.last_update_timestamp_ms,
        "previous_producer_id": kept.previous_producer_id,
        "next_producer_id": kept.next_producer_id,
        "client_version": kept.client_version,
    }
