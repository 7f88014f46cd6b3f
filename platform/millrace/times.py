"""Times as people type them, in ISO 8601, and as records have them, in milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
SECOND_MS = 1000
MIN_DATETIME_MS = -62_135_596_800_000  # the beginning of year 1
MAX_DATETIME_MS = 253_402_300_799_999  # the end of year 9999


def parse_time(text: str) -> datetime:
    """Returns the time in an ISO 8601 text, in UTC if it has no zone; raises ValueError for another text."""
    return in_a_zone(datetime.fromisoformat(text))


def in_a_zone(moment: datetime) -> datetime:
    """Returns the time as it is, or with the zone UTC if it has no zone."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def epoch_ms(moment: datetime) -> int:
    """Returns the milliseconds since 1970 of a time, of UTC if it has no zone.

    A part of a millisecond is rounded up, so that a record with this timestamp is not before the time.
    """
    return -((EPOCH - in_a_zone(moment)) // MILLISECOND)
