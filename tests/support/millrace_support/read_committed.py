"""The records of one fetch with `isolation.level=read_committed`, filtered as Kafka's own consumer does (KIP-98)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from millrace.records.batch import walk
from millrace.records.control import ControlType, decode_marker
from millrace.records.record import Record, decode_batch


def committed_records(batches: bytes, aborted: Iterable[tuple[int, int]]) -> Iterator[Record]:
    """Yields the records that the application sees, of whole batches below the last stable offset; raises RecordError.

    `aborted` are (producer id, first offset) of the transactions that the fetch answer names as aborted.
    """
    coming = deque(sorted(aborted, key=lambda each: each[1]))
    aborting: set[int] = set()
    for position, header in walk(batches):
        while coming and coming[0][1] <= header.last_offset:
            aborting.add(coming.popleft()[0])
        batch = memoryview(batches)[position : position + header.size_bytes]
        if header.is_control:
            marker = decode_marker(header, batch)
            if marker is not None and marker.control_type is ControlType.ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield from decode_batch(header, batch)
