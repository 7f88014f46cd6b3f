"""Which loads are due: a topic's offsets and its table's ledger decide, and then what other runs are doing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from millrace.errors import WarehouseError
from millrace_pipelines.defs.ticks import counted
from millrace_pipelines.defs.topics.offsets import TopicOffsets
from millrace_pipelines.warehouse.ledger.ledger import Ledger

REQUESTS_PER_TICK = 20

TableLedger: TypeAlias = Ledger | WarehouseError | None
"""A table's ledger, the error for which it can't be read, or None where there is no table."""


class Standing(NamedTuple):
    """How far a table is behind its topic, and whether a load is due.

    `lag` is the number of offsets that a load would read now, None where it can't be told; `is_due` says whether a load
    has something to load, or to report: a topic that was created again, a log that was cut, a damaged table.
    """

    lag: int | None
    is_due: bool

    def bounded(self, lag_bound: int | None) -> Standing:
        """Returns the standing of a table that may lag by fewer than `lag_bound` records; None for no bound."""
        is_within = lag_bound is not None and self.lag is not None and self.lag < lag_bound
        return self._replace(is_due=self.is_due and not is_within)


def standing(offsets: TopicOffsets, ledger: TableLedger) -> Standing:
    """Compares a table's ledger with its topic's offsets; the ledger must have been read before the offsets."""
    if ledger is None:
        return Standing(offsets.records, offsets.is_ahead_of({}))
    if isinstance(ledger, WarehouseError) or (offsets.topic_id and offsets.topic_id != ledger.topic_id):
        return Standing(None, is_due=True)
    following = {partition: entry.next_offset for partition, entry in ledger.partitions.items()}
    if offsets.is_behind(following):
        return Standing(None, is_due=True)
    return Standing(offsets.lag(following), offsets.is_ahead_of(following))


class LoadDecision(NamedTuple):
    """What a tick decides about topics: which loads it requests, and why it requests no others."""

    requested: list[str]
    up_to_date: list[str]
    under_way: list[str]
    failed_lately: list[str]
    postponed: list[str]

    @property
    def summary(self) -> str:
        """The number of topics in each list, in a line: "12 topics: 9 up to date, 3 with a load that waits or runs"."""
        parts = {
            "requested": self.requested,
            "up to date": self.up_to_date,
            "with a load that waits or runs": self.under_way,
            "with a load that failed lately": self.failed_lately,
            "left to the next tick": self.postponed,
        }
        counts = [f"{len(topics)} {what}" for what, topics in parts.items() if topics]
        total = counted(sum(map(len, parts.values())), "topic")
        return f"{total}: {', '.join(counts)}" if counts else total


def decide_loads(
    standings: Mapping[str, Standing],
    *,
    under_way: Collection[str],
    failed_lately: Collection[str],
    limit: int = REQUESTS_PER_TICK,
) -> LoadDecision:
    """Returns which topics are loaded: those that are due and free, at most `limit`, the largest lag first.

    Args:
        standings: By topic.
        under_way: Topics with a load that waits or runs.
        failed_lately: Topics whose last load failed a short while ago.
        limit: How many loads one tick may request.
    """
    due = [name for name, one in standings.items() if one.is_due]
    free = [name for name in due if name not in under_way and name not in failed_lately]
    free.sort(key=lambda name: (-(standings[name].lag or 0), name))
    return LoadDecision(
        requested=free[:limit],
        up_to_date=[name for name, one in standings.items() if not one.is_due],
        under_way=[name for name in due if name in under_way],
        failed_lately=[name for name in due if name in failed_lately and name not in under_way],
        postponed=free[limit:],
    )
