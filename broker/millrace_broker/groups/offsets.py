"""Committed offsets of all groups of one partition of `__consumer_offsets`, and the rules by which they expire.

An offset is *pending* from when it is appended until the in-sync replicas have it; in a transaction, until that ends.
Meanwhile a client that asks for stable offsets is told to ask again (KIP-447).

At a transaction's commit marker each of its offsets counts (KIP-98), unless a record behind it in the log counts
already: one without a transaction, or of a transaction that has ended sooner. The same goes for tombstones. So a
replay, before or after compaction, ends with the offsets of a broker that went on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import NamedTuple

from millrace.records.batch import NO_TIMESTAMP
from millrace_broker.groups.group import Group
from millrace_broker.groups.records import CommittedOffset, OffsetKey, Record

TopicOffsets = Mapping[str, Mapping[int, CommittedOffset]]


class Offsets:
    """A shard's committed offsets, by group, topic and partition, and which of them are about to change."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: Counter[OffsetKey] = Counter()
        self.count = 0

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        """Returns the committed offset; None without one."""
        return self._by_group.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def of_group(self, group_id: str) -> TopicOffsets:
        """Returns all offsets of a group, by topic and partition."""
        return self._by_group.get(group_id, {})

    def all(self) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Yields (key, offset) of all offsets; other threads may change them meanwhile."""
        for group_id, topics in tuple(self._by_group.items()):
            for topic, partitions in tuple(topics.items()):
                for partition, committed in tuple(partitions.items()):
                    yield OffsetKey(group_id, topic, partition), committed

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        """Returns all keys of a group."""
        topics = self.of_group(group_id).items()
        return [OffsetKey(group_id, topic, partition) for topic, partitions in topics for partition in partitions]

    def keys_of_topics(self, names: Collection[str]) -> list[OffsetKey]:
        """Returns the keys of all groups' offsets for some topics."""
        return [
            OffsetKey(group_id, topic, partition)
            for group_id, topics in self._by_group.items()
            for topic in names
            for partition in topics.get(topic, ())
        ]

    def put(self, key: OffsetKey, committed: CommittedOffset) -> None:
        """Sets the newest committed offset of a partition."""
        partitions = self._by_group.setdefault(key.group_id, {}).setdefault(key.topic, {})
        self.count += key.partition not in partitions
        partitions[key.partition] = committed

    def remove(self, key: OffsetKey) -> None:
        """Removes an offset, if it is there."""
        topics = self._by_group.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        self.count -= 1
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._by_group[key.group_id]

    def begin(self, key: OffsetKey) -> None:
        """Marks an offset as pending: a newer one is being stored, or is in an open transaction."""
        self._pending[key] += 1

    def end(self, key: OffsetKey) -> None:
        """Undoes one `begin`, as the newer offset is stored or was given up."""
        self._pending[key] -= 1
        if not self._pending[key]:
            del self._pending[key]

    def is_pending(self, key: OffsetKey) -> bool:
        """Returns whether a newer offset is being stored or is in an open transaction."""
        return key in self._pending


def expired(group: Group, offsets: Offsets, *, retention_ms: int, now_ms: int) -> list[OffsetKey]:
    """Returns the keys of a group's offsets that have expired, by the rules of KIP-211.

    An offset with its own expiry expires at that time. Others expire when retention has passed since the group became
    empty or, where there is no such time, since the commit. Pending offsets stay, and those of subscribed topics.
    """
    found = []
    for topic, partitions in offsets.of_group(group.group_id).items():
        if group.is_subscribed(topic):
            continue
        for partition, committed in partitions.items():
            key = OffsetKey(group.group_id, topic, partition)
            base_ms = group.expiry_base_ms(committed)
            if base_ms is None or offsets.is_pending(key):
                continue
            own = committed.expire_timestamp_ms
            if now_ms >= (base_ms + retention_ms if own == NO_TIMESTAMP else own):
                found.append(key)
    return found


class _Pending(NamedTuple):
    """An offset's record in an open transaction, and its place in the order of all such records."""

    order: int
    record: Record


class TransactionalOffsets:
    """The offset records of open transactions, by producer id and key; marks their keys pending in `offsets`."""

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
        """Ends a producer's transaction; returns the records that are valid now, none after an abort."""
        ended = self._by_producer.get(producer_id, {}).copy()
        for key, one in ended.items():
            self._forget(producer_id, key)
            if is_commit:
                self.supersede(key, one.order)
        return [one.record for one in ended.values()] if is_commit else []

    def supersede(self, key: OffsetKey, before: int | None = None) -> None:
        """Drops the records of a key (those before a place in the order, if given), as a newer one is valid."""
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
        """Returns all keys of a group in open transactions."""
        return [key for pending in self._by_producer.values() for key in pending if key.group_id == group_id]

    def keys_of_topics(self, names: Collection[str]) -> list[OffsetKey]:
        """Returns the keys of all groups in open transactions for some topics."""
        return [key for pending in self._by_producer.values() for key in pending if key.topic in names]
