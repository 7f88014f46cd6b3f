"""Decodes a log's producer snapshots and aborted transactions for `millrace dump` (docs/formats/producers.md)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millrace.json_values import JsonObject


def snapshot_lines(content: bytes) -> Iterator[JsonObject]:
    """Yields the producers of a snapshot, or its damage."""
    from millrace.errors import CorruptRecordError
    from millrace_broker.storage.producers.producer_snapshot import decode_snapshot

    try:
        entries = decode_snapshot(content)
    except CorruptRecordError as error:
        yield {"position": 0, "damage": str(error)}
        return
    for entry in entries:
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
        }


def transaction_index_lines(content: bytes, base_offset: int) -> Iterator[JsonObject]:
    """Yields the aborted transactions of a segment, then damage: their markers must lie in it, in ascending order."""
    from millrace_broker.storage.segments.transaction_index import ENTRY, VERSION

    whole = len(content) // ENTRY.size * ENTRY.size
    entries = list(ENTRY.iter_unpack(content[:whole]))
    for number, (_, producer_id, first_offset, last_offset, last_stable_offset) in enumerate(entries):
        yield {
            "entry": number,
            "producer_id": producer_id,
            "first_offset": first_offset,
            "last_offset": last_offset,
            "last_stable_offset": last_stable_offset,
        }
    for number, (version, _, first_offset, last_offset, _) in enumerate(entries):
        if version != VERSION:
            yield _damage(number, f"entry {number} is of version {version}, expected {VERSION}")
        elif last_offset < base_offset or first_offset > last_offset:
            yield _damage(number, f"entry {number} goes from {first_offset} to {last_offset}, base is {base_offset}")
    for number, (before, after) in enumerate(pairwise(entries), start=1):
        if after[3] <= before[3]:
            yield _damage(number, f"entry {number} ends at {after[3]}, the one before at {before[3]}")
    if len(content) > whole:
        yield {"position": whole, "damage": f"{len(content) - whole} bytes are too few for an entry"}


def _damage(number: int, damage: str) -> JsonObject:
    from millrace_broker.storage.segments.transaction_index import ENTRY

    return {"position": number * ENTRY.size, "damage": damage}
