"""Which segments of a log's folder are lost, by the names that are there, and which were deleted.

A log begins with its first segment. Where all files of that are lost, only the log start offset of the checkpoint
tells, which may be older than the last deletion. But who deletes first segments leaves the name of each `.log`, with
`.deleted`, until a newer one is on the disk (`log_checkpoints`):

| known start | first segment | `.log.deleted` | the log |
|---|---|---|---|
| 13 | 10 | | starts at 13 |
| 13 | 20 | none that may have had 13, or began below 20 | starts at 13, and lacks 13 to 19 |
| 13 | 20 | `10.log.deleted`, or another one | starts at 20 |

In the last row these names stay, for a crash may come before the next checkpoint (`log_checkpoints`). So after a crash
what is lost is taken for deleted where such a name is left of the segment in front, as for `file.delete.delay.ms` after
each deletion. A clean stop leaves no older start. Segments that were replaced, as by compaction, leave other names
(`segment_swap`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from millrace_broker.storage.filenames import (
    DELETED_FILE_SUFFIX,
    LOG_SUFFIX,
    parse_segment_file_name,
    segment_file_name,
)
from millrace_broker.storage.segments.damage import DamagedRange


def lost_segments(
    names: Collection[str], files: Mapping[str, tuple[int, str]], log_start_offset: int, *, may_end_early: bool
) -> list[int]:
    """Returns the base offsets of segments that have lost their `.log`, and have not been deleted.

    Whoever deletes a segment renames its `.log` first, and it has that name while another file has its own. Release
    0.1 gave such names to all files of a segment that it had replaced, too. Without those before the first segment the
    log would begin later, and where it is led, so would all other replicas. One between two others leaves a gap: that
    shows by itself, unless the segment before it `may_end_early`, as in a compacted log. Behind the last one none is
    missed.
    """
    logs = {base for base, suffix in files.values() if suffix == LOG_SUFFIX}
    first, last = min(logs, default=0), max(logs, default=0)
    begin = 0 if first > log_start_offset else first
    end = last if may_end_early else first
    left = [(name, base) for name, (base, _) in files.items() if begin <= base < end and base not in logs]
    lost = {
        base
        for name, base in left
        if segment_file_name(base, LOG_SUFFIX) + DELETED_FILE_SUFFIX not in names or name + DELETED_FILE_SUFFIX in names
    }
    return sorted(lost)


def signs_of_deletion(names: Collection[str], start: int, first: int) -> list[str]:
    """Returns the names of deleted segments, from the one that may have had offset `start` up to `first`."""
    ending = LOG_SUFFIX + DELETED_FILE_SUFFIX
    logs = {name: name.removesuffix(DELETED_FILE_SUFFIX) for name in names if name.endswith(ending)}
    bases = {name: parsed[0] for name, log in logs.items() if (parsed := parse_segment_file_name(log))}
    begin = max((base for base in bases.values() if base <= start), default=start)
    return [name for name, base in bases.items() if begin <= base < first]


def is_missing(named: Sequence[DamagedRange], base: int, next_base: int) -> bool:
    """Returns whether the damage that is named of a segment says that all of it is missing."""
    return len(named) == 1 and named[0].is_hole and named[0].start_offset == base < named[0].end_offset <= next_base
