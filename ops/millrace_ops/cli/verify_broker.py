"""Reads the partitions of a running cluster for `verify --bootstrap`, one fetch at a time, and has them checked.

A partition is read from its log start offset to where it ended when its turn came. What prevents that (it has no
leader, a fetch fails) is a finding of this partition; the other partitions are checked all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.client import Cluster, ClusterMetadata, SimpleConsumer
from millrace.client.absent_offsets import is_compacted
from millrace.errors import MillraceError, OffsetOutOfRangeError
from millrace_ops.cli.verify_batches import PartitionCheck, PartitionReport

UNKNOWN_START = 0  # where a check begins if the partition can't be asked for its start


def check_topics(cluster: Cluster, topics: Sequence[str]) -> Iterator[PartitionReport]:
    """Checks every partition of these topics, or of all topics if none is named.

    Raises:
        UnknownTopicError: A topic does not exist; nothing is checked then.
        BrokerUnreachableError: No broker answers with the list of topics.
        BrokerError: Whether a topic is compacted is not told.
    """
    metadata = cluster.metadata(topics or None)
    consumer = SimpleConsumer(cluster)
    found = [metadata.topic(name) for name in dict.fromkeys(topics or sorted(metadata.topics))]
    for topic in found:
        compacted = is_compacted(cluster, topic.name)
        for partition in topic.partitions:
            yield _check_partition(metadata, consumer, topic.name, partition, compacted)


def _check_partition(
    metadata: ClusterMetadata, consumer: SimpleConsumer, topic: str, partition: int, compacted: bool
) -> PartitionReport:
    check = PartitionCheck(topic, partition, UNKNOWN_START, is_compacted=compacted)
    try:
        metadata.leader(topic, partition)  # a missing one is told at once, where a fetch would wait for it
        check.go_on_from(consumer.earliest(topic, partition))
        _read(check, consumer, topic, partition)
    except MillraceError as error:
        check.find(check.next_offset, f"{error}; the partition is not checked from here on")
    return check.report()


def _read(check: PartitionCheck, consumer: SimpleConsumer, topic: str, partition: int) -> None:
    last = consumer.latest(topic, partition)
    leads_on = True
    while leads_on and check.next_offset < last:
        try:
            records = consumer.fetch(topic, partition, check.next_offset).records
        except OffsetOutOfRangeError:
            log_start_offset = consumer.earliest(topic, partition)
            if log_start_offset <= check.next_offset:
                raise
            check.go_on_from(log_start_offset)  # what was next has been deleted meanwhile
        else:
            leads_on = check.take(records, consumer.latest(topic, partition))
