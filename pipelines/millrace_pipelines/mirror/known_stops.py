"""Writes down which partitions of an instance have stopped alone, for those who ask the target and no instance.

The record of a stop stays when its instance ends, and is removed once the partition goes on, in whichever instance.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace_pipelines.mirror.counters import Counted, PartitionCounters
from millrace_pipelines.mirror.rights import TARGET, needing
from millrace_pipelines.mirror.settings import MirrorSettings
from millrace_pipelines.mirror.states import STATES_TOPIC, KnownStop, States

Stops = Mapping[str, Mapping[int, KnownStop]]


def keep_stops(settings: MirrorSettings, mirror: str, lines: Mapping[Counted, PartitionCounters], known: Stops) -> None:
    """Writes what has changed since the stops were read; raises MillraceError where the target does not take it."""
    changed = changes(mirror, lines, known)
    if changed:
        with (
            needing(TARGET, topic=f"Write on topic {STATES_TOPIC}"),
            settings.target.cluster() as cluster,
            settings.target.producer(producer_type="async") as producer,
        ):
            States(cluster, producer).write_stops(changed)


def changes(
    mirror: str, lines: Mapping[Counted, PartitionCounters], known: Stops
) -> dict[tuple[str, int], KnownStop | None]:
    """Returns what is to be written of this instance's partitions: stops, and None for those that go on."""
    found: dict[tuple[str, int], KnownStop | None] = {}
    for one, line in lines.items():
        place = f"{mirror}/{one.what.topic}", one.what.partition
        last = known.get(place[0], {}).get(place[1])
        now = None if line.stop is None else KnownStop(str(line.stop.kind), line.stop.reason)
        is_told = now is not None or (line.next_offset is not None and not line.trouble)
        if one.source == mirror and now != last and is_told:
            found[place] = now
    return found
