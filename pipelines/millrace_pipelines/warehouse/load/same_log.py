"""Whether a topic's logs are those that its table was loaded from, before a load and while it reads.

The cluster is asked three things: the topic's id, the current leader epoch of each partition, and where the log ends in
the leader epoch of the last batch that was loaded (KIP-101). A log that was cut and has grown again past the ledger
gives itself away by the last one alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.records.batch import NO_LEADER_EPOCH
from millrace_pipelines.spark.brokers import LogOffsets, TopicDescription, TopicSource, describe_topic, epoch_ends
from millrace_pipelines.spark.errors import LogTruncatedError, TopicRecreatedError
from millrace_pipelines.warehouse.ledger.generation import AgreedEnd, LedgerChange, agreed_end, next_ledger
from millrace_pipelines.warehouse.ledger.ledger import Ledger, ledger_of
from millrace_pipelines.warehouse.ledger.plan import RangePlan
from millrace_pipelines.warehouse.load.options import AcceptOptions
from millrace_pipelines.warehouse.tables.open import FoundTables


def ledger_change(
    source: TopicSource,
    tables: FoundTables,
    description: TopicDescription,
    log: Mapping[int, LogOffsets],
    accepted: AcceptOptions,
) -> LedgerChange | None:
    """Returns the ledger that the table has to go on with; None where that is its present one.

    Raises:
        TopicRecreatedError: The topic was deleted and created again, and that is not accepted.
        LogTruncatedError: A log has less, or something else, than was loaded of it, and that is not accepted.
    """
    ledger = tables.ledger
    is_same_topic = ledger.topic_id == description.topic_id
    ahead = {} if tables.dead_letters is None else ledger_of(tables.dead_letters).partitions
    return next_ledger(
        ledger,
        description.topic_id,
        _agreed_ends(source, ledger, log, description.leader_epochs) if is_same_topic else {},
        ahead={partition: entry.next_offset for partition, entry in ahead.items()},
        accept_recreated_topic=accepted.accept_recreated_topic,
        accept_truncated_log=accepted.accept_truncated_log,
    )


def _agreed_ends(
    source: TopicSource, ledger: Ledger, log: Mapping[int, LogOffsets], leader_epochs: Mapping[int, int]
) -> dict[int, AgreedEnd]:
    known = {
        partition: entry.leader_epoch
        for partition, entry in ledger.partitions.items()
        if entry.leader_epoch != NO_LEADER_EPOCH and partition in log
    }
    ends = epoch_ends(source, known) if known else {}
    older = {  # the leader doesn't know the epoch either; metadata alone may lag
        partition
        for partition, epoch in known.items()
        if partition not in ends and NO_LEADER_EPOCH < leader_epochs.get(partition, epoch) < epoch
    }
    newer = {partition for partition, epoch in known.items() if leader_epochs.get(partition, epoch) > epoch}
    return {
        partition: agreed_end(
            offsets, ends.get(partition), has_older_epoch=partition in older, has_newer_epoch=partition in newer
        )
        for partition, offsets in log.items()
    }


def check_same_logs(source: TopicSource, planned: TopicDescription, plan: RangePlan) -> None:
    """Checks that the tasks read the topic, and the logs, that the plan was made for.

    A log whose leader epoch has risen since may have been cut and have grown again while the tasks read it.

    Raises:
        TopicRecreatedError: The topic was deleted and created again meanwhile.
        LogTruncatedError: A log was cut below what the plan reads or relies on.
    """
    topic, found = source.topic, describe_topic(source)
    if found.topic_id != planned.topic_id:
        raise TopicRecreatedError(
            f"topic {topic} was deleted and created again while it was loaded: its id is {found.topic_id}, it was "
            f"{planned.topic_id}; nothing was committed"
        )
    risen = {
        partition: epoch
        for partition, epoch in planned.leader_epochs.items()
        if NO_LEADER_EPOCH < epoch < found.leader_epochs.get(partition, epoch)
    }
    reached = _reached(plan)
    for partition, end_offset in (epoch_ends(source, risen) if risen else {}).items():
        if end_offset < reached.get(partition, 0):
            raise LogTruncatedError(
                f"topic {topic}, partition {partition}: the log was cut at offset {end_offset} while it was "
                "loaded; nothing was committed"
            )


def _reached(plan: RangePlan) -> dict[int, int]:
    """Returns, by partition, the offset up to which the plan reads the log or takes it as loaded."""
    read = {span.partition: span.until_offset for span in sorted(plan.ranges)}
    return read | {partition: entry.next_offset for partition, entry in plan.following.items()}
