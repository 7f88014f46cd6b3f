"""Compares a followed log with its source: the same offsets, byte for byte but for leader epochs.

Batches of the same bytes are passed over; others are compared record by record, at each offset. Where neither log is
compacted, batches of other bytes are a difference even if their records are the same, such as another producer id.

Compaction rewrites batches and removes records, on each side at its own times. So where a log is compacted only records
are compared, and one that a side lacks is looked up by its key (`by_key`).
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.client.fetched import FetchedBatch
from millrace.records.batch import LOG_OVERHEAD_BYTES, MAGIC_POSITION, BatchHeader
from millrace_pipelines.mirror.comparison.difference import Difference, Kind, altered, content, extra, missing
from millrace_pipelines.mirror.comparison.log_reader import LogReader, OnPair


def compare_by_offset(
    source: LogReader, target: LogReader, on_pair: OnPair, *, is_compacted: bool
) -> Iterator[Difference]:
    """Yields the differences of two logs, in order; of compacted ones also records that compaction may have removed."""
    while True:
        one, other = source.whole_batch(), target.whole_batch()
        if one is not None and other is not None and one.header.base_offset == other.header.base_offset:
            has_same_records = _is_same(one, other) or list(one.records()) == list(other.records())
            if not is_compacted and not _is_same(one, other) and (has_same_records or _ends_elsewhere(one, other)):
                yield _other_batch(one, other)
            if has_same_records:
                on_pair(one.header.base_offset, other.header.base_offset, one.header.record_count)
                source.drop_batch()
                target.drop_batch()
                continue
        if source.peek() is None and target.peek() is None:
            return
        yield from _step(source, target, on_pair)


def _step(source: LogReader, target: LogReader, on_pair: OnPair) -> Iterator[Difference]:
    """Compares the records at the next offset that either side has."""
    one, other = source.peek(), target.peek()
    if one is not None and (other is None or one.offset <= other.offset):
        source.take()
    if other is not None and (one is None or other.offset <= one.offset):
        target.take()
    if other is None or (one is not None and one.offset < other.offset):
        yield from map(missing, filter(None, [one]))
    elif one is None or other.offset < one.offset:
        yield extra(other)
    elif content(one) != content(other):
        yield altered(one, other)
    else:
        on_pair(one.offset, other.offset, 1)


def _other_batch(one: FetchedBatch, other: FetchedBatch) -> Difference:
    """Returns the difference of batches whose records may be the same, with the names of the fields that differ."""
    names = (
        name.replace("_", " ")
        for name in BatchHeader._fields
        if name != "partition_leader_epoch" and getattr(one.header, name) != getattr(other.header, name)
    )
    at = one.header.base_offset
    return Difference(
        kind=Kind.BATCH, source_offset=at, target_offset=at, detail=f"other {', '.join(names) or 'bytes'}"
    )


def _ends_elsewhere(one: FetchedBatch, other: FetchedBatch) -> bool:
    return one.header.next_offset != other.header.next_offset


def _is_same(one: FetchedBatch, other: FetchedBatch) -> bool:
    """Returns whether two batches have the same bytes, but for the leader epoch between length and magic."""
    return (
        one.data[:LOG_OVERHEAD_BYTES] == other.data[:LOG_OVERHEAD_BYTES]
        and one.data[MAGIC_POSITION:] == other.data[MAGIC_POSITION:]
    )
