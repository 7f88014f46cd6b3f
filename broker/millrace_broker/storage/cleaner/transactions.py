"""What a compaction pass knows of transactions as it goes through a log from its start (KIP-98, KIP-534).

    transaction index        says which batches belong to an aborted transaction, before the marker is met
    a batch                  of an aborted transaction is void: all of it goes; any other is compacted by key
    a marker                 is void where no batch of its transaction was met: nothing is left that needs it

Batches without records count as met. So a marker outlives the last batch of its transaction by one pass at least, and
an aborted transaction stays in the index as long as there is a batch that a reader would take for a committed one.
A void transaction leaves the index at once; its marker goes when its delete horizon has passed (`batches`).

A pass stays below the first unstable offset, so every transaction that it meets is decided. The rules are those of
Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from millrace.records.batch import BatchHeader
from millrace.records.control import ControlType, decode_marker
from millrace_broker.storage.segments.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions of one pass. Batches must come in the order of their offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Takes all aborted transactions that reach into the offsets of the pass."""
        self._coming = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborting: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        self._needed: list[AbortedTransaction] = []

    def is_void(self, header: BatchHeader, batch: memoryview) -> bool:
        """Takes the next batch; returns whether no reader needs it. Raises CorruptRecordError or InvalidRecordError."""
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            aborted = self._coming.popleft()
            self._aborting[aborted.producer_id] = aborted
        if header.is_control:
            return self._is_void_marker(header, batch)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        found = self._aborting.get(header.producer_id)
        return found is not None and header.last_offset < found.last_offset

    def take_needed(self) -> list[AbortedTransaction]:
        """Returns the aborted transactions of which a batch was met, for the markers since the last call."""
        needed, self._needed = self._needed, []
        return needed

    def _is_void_marker(self, header: BatchHeader, batch: memoryview) -> bool:
        marker = decode_marker(header, batch)
        if marker is None:
            return not header.record_count
        was_met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        if marker.control_type is ControlType.ABORT:
            aborted = self._aborting.pop(header.producer_id, None)
            if was_met and aborted is not None:
                self._needed.append(aborted)
        return not was_met
