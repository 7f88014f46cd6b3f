"""Cuts the end of a segment off: the `.log` is made shorter, and its indexes with it.

    step                                                        what a crash behind it leaves
    1  cut the .log and sync it                                 the whole segment, or what stays of it
    2  cut .index and .timeindex, replace .txnindex, sync all   what stays, with indexes that fit or are rebuilt

What was cut is never written over: a log goes on in another file, so that whoever still reads this one finds its end.
Where the disk has no room for the indexes, they wait in memory, and a start rebuilds them.
"""

from __future__ import annotations

from contextlib import ExitStack

from millrace.config import MAX_LONG
from millrace.fs import FileSystem
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.segments.damage import Synced
from millrace_broker.storage.segments.segment import LogSegment


def cut_segment(  # noqa: PLR0917 -- a segment, where it ends, and what opens it
    fs: FileSystem, directory: str, segment: LogSegment, position: int, end_offset: int, config: LogConfig
) -> LogSegment:
    """Cuts a segment at a batch's end, and returns another over the same files, closed and synced.

    Raises OSError.

    The old one stays open for those who hold it, and ends where the file does. `position` and `end_offset` are those of
    `LogSegment.end_below`.
    """
    aborted = [each for each in segment.transaction_index.entries() if each.last_offset < end_offset]
    has_indexes = segment.write_indexes()
    segment.size_bytes, segment.next_offset = position, end_offset
    fs.truncate(segment.fd, position)
    fs.fsync(segment.fd)
    cut = LogSegment(fs, directory, segment.base_offset, config)
    with ExitStack() as undo:
        undo.callback(cut.release)
        cut.damage = tuple(one for one in segment.damage if one.end_offset <= end_offset)
        cut.offset_index.cut(position)
        cut.time_index.cut(end_offset - cut.base_offset)
        if not has_indexes or not cut.load_active():
            cut.recover(truncate=False, gaps_up_to_offset=MAX_LONG, synced=Synced(MAX_LONG, end_offset, is_end=True))
        cut.finish()
        if cut.transaction_index.replace(aborted) and cut.write_indexes():
            cut.sync()
            cut.seal()
        else:
            cut.time_index.withdraw()
        undo.pop_all()
    return cut
