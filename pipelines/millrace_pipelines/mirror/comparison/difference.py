"""The differences between a topic and its mirror, and the line by which the audit tells each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from millrace.records.record import Record

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""All that a copied record shares with its source: timestamp, key, value and headers."""


class Kind(StrEnum):
    """The kinds of differences, in words for people."""

    MISSING = "missing at the target"
    EXTRA = "only at the target"
    TWICE = "twice at the target"
    ALTERED = "not the same"
    MOVED = "in another order"
    BATCH = "in batches of other bytes"
    OFFSET_MAP = "elsewhere by the offset map"
    UNREADABLE = "not to be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference of `count` successive records from these offsets on; None where a side has no such record.

    `detail` names the fields that differ, or what else there is to say. `source` and `target` are the records
    themselves, where it is about one of each side, or one that a side has alone.
    """

    kind: Kind
    source_offset: int | None = None
    target_offset: int | None = None
    count: int = 1
    detail: str = ""
    source: Record | None = None
    target: Record | None = None

    def __str__(self) -> str:
        """Returns the difference as a part of a sentence: the offsets, the kind and the detail."""
        places = [f"source {self.source_offset}", f"target {self.target_offset}"]
        offsets = (self.source_offset, self.target_offset)
        known = ", ".join(place for place, offset in zip(places, offsets, strict=True) if offset is not None)
        many = f"{self.count} records from {known} on" if self.count > 1 else known
        return f"{many}: {self.kind}" + (f" ({self.detail})" if self.detail else "")


def content(record: Record) -> Content:
    """Returns what a record at the target has to share with its source, whatever its offset."""
    return record[1:]


def altered(source: Record, target: Record) -> Difference:
    """Returns the difference of two records that should be the same, with the names of the fields that differ."""
    pairs = zip(("timestamp", "key", "value", "headers"), content(source), content(target), strict=True)
    detail = ", ".join(name for name, one, other in pairs if one != other)
    return Difference(
        kind=Kind.ALTERED,
        source_offset=source.offset,
        target_offset=target.offset,
        detail=f"other {detail}",
        source=source,
        target=target,
    )


def missing(record: Record) -> Difference:
    """Returns the difference of a record that the source has alone."""
    return Difference(kind=Kind.MISSING, source_offset=record.offset, source=record)


def extra(record: Record) -> Difference:
    """Returns the difference of a record that the target has alone."""
    return Difference(kind=Kind.EXTRA, target_offset=record.offset, target=record)
