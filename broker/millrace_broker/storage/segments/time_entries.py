"""Entries of a time index compared with the batches that they name, before anything relies on them.

No checksum covers an index. By the last entry of a closed segment retention deletes, and by any of them a search for a
timestamp passes over what is older.

| when | what is compared |
|---|---|
| a start | the last entry with the segment's last batch, which it names in most segments, and which must not be newer |
| it names another batch, and retention is to delete the segment, or a search to pass over it | all from there on |
| it names another batch, and the segment is to take appends | the same, as later entries would hide a missing one |
| a search begins at an entry | that entry with its batch |

An entry that is wrong has the index made again at a start, and a search goes without it. Entries that nobody needs stay
wrong until the scrubber comes (`index_check`). Where nobody has read the headers behind the last entry, a segment
counts as no older than its file.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.config import MAX_LONG
from millrace.errors import RecordError
from millrace.records.batch import NO_TIMESTAMP, BatchHeader
from millrace.turns import each
from millrace_broker.storage.segments.damage import covering
from millrace_broker.storage.segments.indexes import Entry
from millrace_broker.storage.segments.segment import LogSegment

MOST_READ_BYTES = 256 << 10  # at a start, of the newest segment of each log


def fits_its_batch(segment: LogSegment, entry: Entry) -> bool:
    """Returns whether the batch that an entry names has its timestamp, unless it is damaged.

    Where no batch has a timestamp the entry has none, and names no batch. Raises RecordError or OSError.
    """
    timestamp, offset = entry[0], segment.base_offset + entry[1]
    if timestamp == NO_TIMESTAMP or covering(segment.damage, offset) is not None:
        return True
    header = next((header for _, header in segment.headers(segment.position_of(offset))), None)
    return header is not None and header.base_offset <= offset and header.max_timestamp == timestamp


def last_headers(segment: LogSegment) -> list[BatchHeader]:
    """Returns the headers from the last one on that the offset index names. Raises RecordError or OSError."""
    end = segment.offset_index.last
    return [header for _, header in segment.headers(0 if end is None else end[1])]


def names_newest(segment: LogSegment, last: Sequence[BatchHeader]) -> bool:
    """Returns false where the time index does not end with the largest timestamp, by the `last_headers`.

    Notes whether the segment's newest timestamp is known. It is not where the last entry names none of these batches:
    the entry may be wrong, or another one missing behind it.
    """
    newest = segment.time_index.last
    if newest is None:
        return segment.offset_index.last is None
    named = segment.base_offset + newest[1]
    holder = next((one for one in last if one.base_offset <= named <= one.last_offset), None)
    if holder is not None and holder.max_timestamp != newest[0]:
        return False
    segment.is_newest_known = holder is not None
    return all(header.max_timestamp <= segment.max_timestamp for header in last)


def prepare_appends(segment: LogSegment) -> bool:
    """Sees to it that no entry of a later batch hides that one is missing; returns false where the index is wrong.

    An entry has the largest timestamp so far. So what is behind the last one is read, or else the next append begins
    another segment, and this one gets no more entries. Raises OSError.
    """
    return ends_with_newest(segment, MOST_READ_BYTES)


def ends_with_newest(segment: LogSegment, most_bytes: int = MAX_LONG) -> bool:
    """Returns whether the last entry is right and none is missing behind it, by all headers from its batch on.

    Where these take more than `most_bytes` it is not known, and the next append begins another segment. Raises OSError.
    """
    try:
        if not names_newest(segment, last_headers(segment)):
            return False
        entry = segment.time_index.last
        if segment.is_newest_known or entry is None:
            return True
        if not fits_its_batch(segment, entry):
            return False
        if segment.size_bytes - _named_by_last(segment) > most_bytes:
            segment.is_index_full = True
            return True
        segment.is_newest_known = newest_behind(segment)[0] == segment.max_timestamp
    except RecordError:
        return False
    return segment.is_newest_known


def newest_behind(segment: LogSegment) -> tuple[int, int]:
    """Returns the largest timestamp from the batch on that the last entry names, and the last offset of its batch.

    All batches are read where that entry is wrong. The timestamp is -1 without batches. Any thread may call this.
    Raises RecordError or OSError.
    """
    entry = segment.time_index.last
    start = _named_by_last(segment) if entry is not None and fits_its_batch(segment, entry) else 0
    newest = NO_TIMESTAMP, segment.base_offset
    for _, header in each(segment.headers(start)):
        if header.max_timestamp > newest[0]:
            newest = header.max_timestamp, header.last_offset
    return newest


def learn_newest(segment: LogSegment, newest: tuple[int, int]) -> None:
    """Takes what `newest_behind` has returned. Nothing is appended to a segment of which it is not known.

    The log's own thread.
    """
    segment.max_timestamp, segment.max_timestamp_offset = newest
    segment.is_newest_known = True


def _named_by_last(segment: LogSegment) -> int:
    entry = segment.time_index.last
    return 0 if entry is None else segment.position_of(segment.base_offset + entry[1])
