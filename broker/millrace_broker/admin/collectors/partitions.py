"""The metrics of each log that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millrace_broker.admin.collectors.families import Family, LargeFamily
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica_manager import ReplicaManager

Value = Callable[[Partition], int]


def _unstable(partition: Partition) -> int:
    high_watermark = partition.high_watermark
    return high_watermark - partition.log.producers.first_unstable_offset(high_watermark)


LOG_GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("log_start_offset", "First offset in the log.", lambda one: one.log.log_start_offset),
    ("log_end_offset", "Offset after the last in the log.", lambda one: one.log.log_end_offset),
    ("log_size_bytes", "Bytes in the log.", lambda one: one.log.size_bytes),
    ("last_stable_offset_lag", "Offsets that wait for open transactions to end.", _unstable),
)


class PartitionCollector:
    """The logs of led partitions, in gauges that have the topic and the partition as labels."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def collect(self) -> Iterable[Family]:
        """Yields all families."""
        led = tuple(self._replicas.partitions.values())
        for name, text, value in LOG_GAUGES:
            yield LargeFamily(f"millrace_{name}", text, "gauge", _rows(led, value))


def _rows(led: Iterable[Partition], value: Value) -> Iterator[str]:
    for one in led:
        topic, index = one.log.topic_partition
        yield f'{{partition="{index}",topic="{topic}"}} {value(one)}'  # the name of a topic has nothing to escape
