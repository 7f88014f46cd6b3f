"""Entries of a time index compared with the batches that they name, before anything relies on them.

No checksum covers an index. By the last entry of a closed segment retention deletes, and by any of them a search for a
timestamp passes over what is older. So a start compares the last entry with two batches, the one that it names and the
segment's last one, and a search compares the entry that it starts from. An entry that is wrong has the index made again
at a start, and a search goes without it; entries that nobody needs stay wrong until the scrubber comes (`index_check`).

Entries at the end may be missing, too. Where the last entry names the segment's last batch, as in most, none is.
Elsewhere the headers behind the batch that it names are read, once in a process, before a search passes over the
segment or retention deletes it. Where nobody has read them, the segment counts as no older than its file.
"""

from __future__ import annotations

from millrace.errors import RecordError
from millrace.records.batch import NO_TIMESTAMP
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


def names_newest(segment: LogSegment) -> bool:
    """Returns whether the time index ends with the largest timestamp, as far as the segment's last batch tells.

    Where the newest batch lies before that one, an entry that is missing at the end may not show, and the segment's
    newest timestamp is not known. Raises OSError.
    """
    newest, end = segment.time_index.last, segment.offset_index.last
    if newest is None:
        return end is None
    try:
        last = [header for _, header in segment.headers(0 if end is None else end[1])]
        is_newer = any(header.max_timestamp > segment.max_timestamp for header in last)
        if is_newer or not fits_its_batch(segment, newest):
            return False
    except RecordError:
        return False
    segment.is_newest_known = end is None or any(one.last_offset == segment.base_offset + newest[1] for one in last)
    return True


def prepare_appends(segment: LogSegment) -> bool:
    """Sees to it that no entry of a later batch hides that one is missing; returns false where the index is wrong.

    An entry has the largest timestamp so far. So what is behind the last one is read, or else the next append begins
    another segment, and this one gets no more entries. Raises OSError.
    """
    if segment.is_newest_known:
        return True
    try:
        if segment.size_bytes - _unread_from(segment) > MOST_READ_BYTES:
            segment.is_index_full = True
            return True
        is_right = newest_behind(segment)[0] <= segment.max_timestamp
    except RecordError:
        return False
    segment.is_newest_known = is_right
    return is_right


def make_newest_known(segment: LogSegment) -> None:
    """Reads how new a segment is unless that is known. The log's own thread. Raises RecordError or OSError."""
    if not segment.is_newest_known:
        learn_newest(segment, newest_behind(segment))


def newest_behind(segment: LogSegment) -> tuple[int, int]:
    """Returns the largest timestamp from the batch on that the last entry names, and the last offset of its batch.

    The timestamp is -1 without batches. Any thread may call this. Raises RecordError or OSError.
    """
    newest = NO_TIMESTAMP, segment.base_offset
    for _, header in each(segment.headers(_unread_from(segment))):
        if header.max_timestamp > newest[0]:
            newest = header.max_timestamp, header.last_offset
    return newest


def learn_newest(segment: LogSegment, newest: tuple[int, int]) -> None:
    """Takes what `newest_behind` has returned, perhaps before the latest appends. The log's own thread."""
    if newest[0] > segment.max_timestamp:
        segment.max_timestamp, segment.max_timestamp_offset = newest
    segment.is_newest_known = True


def _unread_from(segment: LogSegment) -> int:
    entry = segment.time_index.last
    return 0 if entry is None else segment.position_of(segment.base_offset + entry[1])
