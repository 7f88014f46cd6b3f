"""The doors to a cluster of the mirror: what it says of its topics (`fetching` has the one to their records)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace.client import Cluster
from millrace.client.damaged_batches import MissingOffsetsError, is_compacted
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import Partition
from millrace.errors import ClientError, MillraceError
from millrace.records.intervals import Interval
from millrace_pipelines.mirror.rights import explained, needing
from millrace_pipelines.mirror.stops import Mirrored

COMPACTION_KNOWN_S = 60.0


class SameClusterError(ClientError):
    """A source and the target are the same cluster, or say that they are."""


def check_two_clusters(name: str, source: Cluster, target: Cluster) -> None:
    """Raises SameClusterError where the source of this name has the cluster id of the target.

    A record's origins are cluster ids: one id for both would make every topic one that comes from the target.
    """
    source_id, target_id = (one.metadata([]).cluster_id for one in (source, target))
    if source_id is not None and source_id == target_id:
        raise SameClusterError(
            f"source {name} and the target have the same cluster id, {source_id}: either the addresses are those of "
            "one cluster, which is not mirrored into itself, or two clusters were given one id by hand; "
            "name another cluster, or give one of the two an id of its own"
        )


class ClusterLooks:
    """Tells one thread of the mirror about a cluster's topics; in errors the cluster is called `side`."""

    def __init__(self, cluster: Cluster, isolation: IsolationLevel, side: str) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._side = side
        self._compacted: dict[str, tuple[float, bool]] = {}

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, LogOffsets | MillraceError]:
        """Returns where each partition's log starts and ends."""
        found = read_log_offsets(self._cluster, partitions, self._isolation)
        return {
            one: explained(end, self._side, topic=f"Describe on topic {one[0]}")
            if isinstance(end, MillraceError)
            else end
            for one, end in found.items()
        }

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str | None]:
        """Returns the id of each topic; None for one that has none, or can't be asked for."""
        wanted = sorted(set(topics))
        try:
            known = self._cluster.metadata(wanted).topics
        except MillraceError:
            return dict.fromkeys(wanted)
        ids = {name: known[name].topic_id if name in known else None for name in wanted}
        return {name: None if one is None else str(one) for name, one in ids.items()}

    def is_compacted(self, topic: str) -> bool:
        """Returns whether compaction removes records of a topic; what was found is believed for a minute."""
        now_s = self._cluster.clock.monotonic_s()
        known_s, found = self._compacted.get(topic, (0.0, False))
        if topic not in self._compacted or now_s - known_s > COMPACTION_KNOWN_S:
            with needing(self._side, topic=f"DescribeConfigs on topic {topic}"):
                found = is_compacted(self._cluster, topic)
            self._compacted[topic] = now_s, found
        return found

    def check_gap(self, what: Mirrored, gap: Interval) -> None:
        """Raises MissingOffsetsError for absent offsets of a topic that is not compacted."""
        if not self.is_compacted(what.topic):
            raise MissingOffsetsError(
                f"offsets among {gap} are missing, and the topic is not compacted: batches are lost or damaged "
                "(millrace verify tells more)"
            )
