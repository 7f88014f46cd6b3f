"""What readers with `isolation.level=read_committed` pass over, as Kafka's own consumer does (KIP-98).

The answer to a fetch of committed records names the aborted transactions among its batches, each by its producer and
first offset. From that offset on the producer's transactional batches are passed over, up to its next abort marker:

    offset   0     1     2     3        4        5     6
    batch    A     B     A     B        A abort  A     B commit        aborted = [(A, 0)]
    read           ✓           ✓                 ✓

An answer ends below the last stable offset, so every transaction in it is decided. A transaction that began before the
answer's first batch is named again in the next answer: each answer has its own filter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from millrace.records.batch import BatchHeader, check_crc
from millrace.records.control import ControlType, decode_marker


class AbortedTransactions:
    """Says of each batch of one fetch, in order, whether its transaction was aborted."""

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        """Takes (producer id, first offset) as the answer names them, in any order."""
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._aborting: set[int] = set()

    def has_aborted(self, header: BatchHeader, batch: memoryview) -> bool:
        """Returns whether to pass over the batch, of which `batch` is exactly the bytes; False for a marker.

        It must be asked for every batch, also for those that are of no interest. Raises RecordError for a marker that
        can't be read.
        """
        while self._coming and self._coming[0][1] <= header.last_offset:
            self._aborting.add(self._coming.popleft()[0])
        if header.producer_id not in self._aborting:
            return False
        if not header.is_control:
            return header.is_transactional
        check_crc(batch, 0, header)
        marker = decode_marker(header, batch)
        if marker is not None and marker.control_type is ControlType.ABORT:
            self._aborting.discard(header.producer_id)
        return False
