"""Offsets that are committed in transactions which have not ended (KIP-98, KIP-447).

They are pending until the marker: readers of stable offsets wait for it. At a commit marker each counts, unless what
came into the log after it counts already, be it of no transaction or of one that has ended sooner; a tombstone does so
too. So a replay, before compaction or after it, ends as the broker that went on.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import NamedTuple

from millrace_broker.groups.offsets import Offsets
from millrace_broker.groups.records import OffsetKey, Record


class _Pending(NamedTuple):
    """A record, and its place among those of all transactions."""

    order: int
    record: Record


class TransactionalOffsets:
    """Records by producer id and key; `offsets` is told what is pending."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets
        self._by_producer: dict[int, dict[OffsetKey, _Pending]] = {}
        self._order = count()

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, producer_id: int, key: OffsetKey, record: Record) -> None:
        """The newest record of a key in the producer's transaction."""
        pending = self._by_producer.setdefault(producer_id, {})
        if key not in pending:
            self._offsets.begin(key)
        pending[key] = _Pending(next(self._order), record)

    def end(self, producer_id: int, *, is_commit: bool) -> list[Record]:
        """The records that count from now on, as the transaction has ended."""
        ended = self._by_producer.pop(producer_id, {})
        for key, one in ended.items():
            self._offsets.end(key)
            if is_commit:
                self.supersede(key, one.order)
        return [one.record for one in ended.values()] if is_commit else []

    def supersede(self, key: OffsetKey, before: int | None = None) -> None:
        """A newer record counts: forget those of the key, or those that came before."""
        for producer_id, pending in tuple(self._by_producer.items()):
            one = pending.get(key)
            if one is not None and (before is None or one.order < before):
                del pending[key]
                self._offsets.end(key)
                if not pending:
                    del self._by_producer[producer_id]

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        """All of a group's keys that are pending."""
        return [key for pending in self._by_producer.values() for key in pending if key.group_id == group_id]

    def keys_of_topics(self, names: Collection[str]) -> list[OffsetKey]:
        """Every group's keys for some topics that are pending."""
        return [key for pending in self._by_producer.values() for key in pending if key.topic in names]
