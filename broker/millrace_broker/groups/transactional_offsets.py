"""Offsets that are committed in transactions which have not ended (KIP-98, KIP-447).

They are pending until the marker: readers of stable offsets wait for it. At a commit marker each counts, unless a
record behind it in the log counts already: one without a transaction, or of a transaction that has ended sooner. The
same goes for tombstones. So a replay, before or after compaction, ends with the offsets of a broker that went on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import count
from typing import NamedTuple

from millrace_broker.groups.offsets import Offsets
from millrace_broker.groups.records import OffsetKey, Record


class _Pending(NamedTuple):
    """A record, and its place in the order of those of all transactions."""

    order: int
    record: Record


class TransactionalOffsets:
    """Records by producer id and key; `offsets` learns which are pending."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets
        self._by_producer: dict[int, dict[OffsetKey, _Pending]] = {}
        self._producers: defaultdict[OffsetKey, set[int]] = defaultdict(set)  # of each key
        self._order = count()

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, producer_id: int, key: OffsetKey, record: Record) -> None:
        """Adds the newest record of a key in the producer's transaction."""
        pending = self._by_producer.setdefault(producer_id, {})
        if key not in pending:
            self._offsets.begin(key)
            self._producers[key].add(producer_id)
        pending[key] = _Pending(next(self._order), record)

    def end(self, producer_id: int, *, is_commit: bool) -> list[Record]:
        """Ends a transaction; returns the records that count from now on."""
        ended = self._by_producer.get(producer_id, {}).copy()
        for key, one in ended.items():
            self._forget(producer_id, key)
            if is_commit:
                self.supersede(key, one.order)
        return [one.record for one in ended.values()] if is_commit else []

    def supersede(self, key: OffsetKey, before: int | None = None) -> None:
        """Forgets the records of a key, or those before a place in the order, as a newer record counts."""
        for producer_id in tuple(self._producers.get(key, ())):
            if before is None or self._by_producer[producer_id][key].order < before:
                self._forget(producer_id, key)

    def _forget(self, producer_id: int, key: OffsetKey) -> None:
        self._offsets.end(key)
        pending, producers = self._by_producer[producer_id], self._producers[key]
        del pending[key]
        producers.discard(producer_id)
        if not pending:
            del self._by_producer[producer_id]
        if not producers:
            del self._producers[key]

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        """Returns all pending keys of a group."""
        return [key for pending in self._by_producer.values() for key in pending if key.group_id == group_id]

    def keys_of_topics(self, names: Collection[str]) -> list[OffsetKey]:
        """Returns the pending keys of all groups for some topics."""
        return [key for pending in self._by_producer.values() for key in pending if key.topic in names]
