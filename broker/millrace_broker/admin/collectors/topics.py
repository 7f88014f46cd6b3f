"""The metrics of what clients write to and read from topics, and of what replicas are sent."""

from __future__ import annotations

from collections.abc import Iterable

from millrace_broker.admin.collectors.families import Family, LargeFamily
from millrace_broker.admin.collectors.topic_series import FIELDS, OTHER, TopicSeries
from millrace_broker.replication.replica_manager import ReplicaManager

MAX_TOPICS = 1000
TEXTS = {
    "records_in": "Records that clients wrote.",
    "bytes_in": "Bytes of records that clients wrote.",
    "bytes_out": "Bytes of records that clients read.",
    "replicated_bytes_in": "Bytes of records that this broker fetched from leaders.",
    "replicated_bytes_out": "Bytes of records that followers fetched from this broker.",
}


class TopicCollector:
    """The traffic of the busiest topics by name, and of all others together."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._series = TopicSeries(MAX_TOPICS)
        self._is_looking = False

    def collect(self) -> Iterable[Family | None]:
        """Yields all families; a request during the look of another one gets them as they are at that moment."""
        if not self._is_looking:
            self._is_looking = True
            try:
                yield from self._series.look(self._replicas.traffic())
            finally:
                self._is_looking = False
        told = [*self._series.named.items(), (OTHER, self._series.others)]
        for index, field in enumerate(FIELDS):
            rows = [f'{{topic="{topic}"}} {numbers[index]}' for topic, numbers in told]
            yield LargeFamily(f"millrace_topic_{field}", TEXTS[field], "counter", rows, self._series.totals[index])
