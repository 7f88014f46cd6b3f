"""Faults of compaction and retention that are planted for a simulation to find; each function plants one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.config import MAX_LONG
from millrace_broker.storage import retention
from millrace_broker.storage.cleaner import batches, cleaner, log_cleaner
from millrace_broker.storage.cleaner.batches import OffsetMap
from millrace_broker.storage.cleaner.cleaner import CleanedTransactions
from millrace_broker.storage.log import truncation
from millrace_broker.storage.retention import ByTime
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


# Compaction.


@FAULTS.add
def compacts_above_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Drops values for newer ones that may be cut off yet."""
    patch.setattr(log_cleaner, "_first_unstable_offset", lambda log: log.log_end_offset)


@FAULTS.add
def takes_aborted_records_for_newest(patch: pytest.MonkeyPatch) -> None:
    """Drops values for those of aborted transactions."""
    real = cleaner.fill_map

    def fill_map(fs: Any, segments: Any, start: int, _: Any, *rest: Any) -> int:
        return real(fs, segments, start, CleanedTransactions(()), *rest)

    patch.setattr(log_cleaner, "fill_map", fill_map)


@FAULTS.add
def keeps_the_first_of_equal_keys(patch: pytest.MonkeyPatch) -> None:
    """Drops values for older ones with the same key."""
    put, stays = OffsetMap.put, batches._stays  # noqa: SLF001

    def put_first(self: Any, key: bytes, offset: int) -> bool:
        return self.get(key) >= 0 or put(self, key, offset)

    def first_stays(header: Any, record: Any, rules: Any, counts: Any) -> bool:
        offset = header.base_offset + record.offset_delta
        has_older = offset < rules.end_offset and 0 <= rules.latest.get(record.key or b"") < offset
        return not has_older and stays(header, record, rules, counts)

    patch.setattr(OffsetMap, "put", put_first)
    patch.setattr(batches, "_stays", first_stays)


# Retention.


@FAULTS.add
def deletes_above_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Lets segments go that followers may not have yet."""
    real = retention.deletable
    patch.setattr(truncation, "deletable", lambda *args, **how: real(*args, **how | {"up_to_offset": MAX_LONG}))


@FAULTS.add
def deletes_what_is_young(patch: pytest.MonkeyPatch) -> None:
    """Lets segments go when a third of `retention.ms` has passed."""
    real = ByTime.__init__

    def init(self: Any, config: Any) -> None:
        real(self, config)
        self.retention_ms //= 3

    patch.setattr(ByTime, "__init__", init)
