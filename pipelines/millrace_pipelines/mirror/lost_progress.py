"""Makes the progress again that the mirror's group has lost, of the newest records of the offset map.

The progress and the map are of one transaction, so that the map's newest record says exactly which records are there.
It counts only where it fits the target's log: one of a former topic, or one that was cut, is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millrace.client import Cluster
from millrace.errors import MillraceError
from millrace_pipelines.mirror.copy import Progress
from millrace_pipelines.mirror.offset_map_topic import OFFSET_MAP_TOPIC, LastMapped, last_mapped
from millrace_pipelines.mirror.rights import TARGET, needing
from millrace_pipelines.mirror.stops import Mirrored


class KnownProgress(NamedTuple):
    """The progress of a partition; `is_restored` says that the group has lost it."""

    progress: Progress | None
    is_restored: bool = False


def restored(
    cluster: Cluster, mirror: str, lost: Mapping[Mirrored, int]
) -> dict[Mirrored, KnownProgress | MillraceError]:
    """Returns the progress of partitions that have lost it, or the error; `lost` has where their logs end here."""
    try:
        with needing(TARGET, topic=f"Read on topic {OFFSET_MAP_TOPIC}"):
            found = last_mapped(cluster, mirror, [what.at_source for what in lost])
    except MillraceError as error:
        return dict.fromkeys(lost, error)
    return {what: of_map(found.get(what.at_source), log_end) for what, log_end in lost.items()}


def of_map(last: LastMapped | None, log_end: int) -> KnownProgress:
    """Returns the progress by the newest record of a map, if there is one, and it fits a log that ends here."""
    if last is None or last.target_end > log_end:
        return KnownProgress(None)
    progress = Progress.mapped(last.next_source, last.progress)
    return KnownProgress(progress, is_restored=progress is not None)
