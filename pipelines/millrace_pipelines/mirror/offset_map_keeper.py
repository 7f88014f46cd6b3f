"""Keeps the offset maps of a mirror as small as its topics at the target: runs that these have deleted are removed."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.client import Cluster, LogOffsets, read_log_offsets
from millrace.client.fetched import IsolationLevel
from millrace_pipelines.mirror.offset_map_topic import remove_passed
from millrace_pipelines.mirror.translation import MirroredTopic


def remove_deleted_runs(cluster: Cluster, mirror: str, topics: Iterable[MirroredTopic]) -> int:
    """Writes tombstones for what lies below the log starts of the copied topics; returns how many.

    A partition that can't be asked for its log start is passed over until the next time.
    """
    copied = {one.target_topic: one.topic for one in topics if not one.is_followed}
    known = cluster.metadata(sorted(copied)).topics if copied else {}
    partitions = [(name, index) for name in copied if name in known for index in known[name].partitions]
    logs = read_log_offsets(cluster, partitions, IsolationLevel.READ_UNCOMMITTED)
    log_starts = {
        (copied[name], index): log.start_offset for (name, index), log in logs.items() if isinstance(log, LogOffsets)
    }
    return remove_passed(cluster, mirror, log_starts) if log_starts else 0
