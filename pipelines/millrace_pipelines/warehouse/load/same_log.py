"""Whether a topic's logs are those that its table was loaded from, before a load and while it reads.

The cluster is asked three things: the topic's id, the offsets of each partition with the epoch of the leader that gave
them, and where the log ends in the leader epoch of the last batch that was loaded (KIP-101). Only the last one shows
that a log was cut if it has grown past the ledger again.

The epoch of a leader is the one that came with its offsets, since metadata may name an older or a newer one. A former
leader that has not heard of its successor lacks the successor's records, and yet its log was not cut. So before a log
counts as cut, all brokers are asked who leads it, and the newest leader's log is the one that counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.records.batch import NO_LEADER_EPOCH
from millrace_pipelines.spark.brokers import (
    Brokers,
    LogOffsets,
    TopicDescription,
    TopicSource,
    brokers_of,
    describe_topic,
    epoch_ends,
)
from millrace_pipelines.spark.errors import LogTruncatedError, TopicRecreatedError
from millrace_pipelines.warehouse.ledger.generation import (
    AgreedEnd,
    LedgerChange,
    agreed_end,
    cut_partitions,
    next_ledger,
)
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
    """Returns the new ledger with which the table has to go on; None where it keeps the present one.

    Raises:
        TopicRecreatedError: The topic was deleted and created again, and that is not accepted.
        LogTruncatedError: A log has less, or something else, than was loaded of it, and that is not accepted.
        ClientError: A log seems to be cut, and not all brokers can be asked who leads it.
    """
    ledger = tables.ledger
    entries = {} if tables.dead_letters is None else ledger_of(tables.dead_letters).partitions
    ahead = {partition: entry.next_offset for partition, entry in entries.items()}
    is_same_topic = ledger.topic_id == description.topic_id
    return next_ledger(
        ledger,
        description.topic_id,
        _checked_ends(source, ledger, log, ahead) if is_same_topic else {},
        ahead=ahead,
        accept_recreated_topic=accepted.accept_recreated_topic,
        accept_truncated_log=accepted.accept_truncated_log,
    )


def _checked_ends(
    source: TopicSource, ledger: Ledger, log: Mapping[int, LogOffsets], ahead: Mapping[int, int]
) -> dict[int, AgreedEnd]:
    """Returns up to where each log agrees, by the leaders that were asked; by the newest ones where logs seem cut."""
    with brokers_of(source) as brokers:
        ends = _agreed_ends(brokers, source.topic, ledger, log)
        cut = cut_partitions(ledger, ends, ahead)
        if cut:
            ends |= _agreed_ends(brokers, source.topic, ledger, brokers.newest_log_offsets(source.topic, cut))
        return ends


def _agreed_ends(brokers: Brokers, topic: str, ledger: Ledger, log: Mapping[int, LogOffsets]) -> dict[int, AgreedEnd]:
    known = {
        partition: entry.leader_epoch
        for partition, entry in ledger.partitions.items()
        if entry.leader_epoch != NO_LEADER_EPOCH and partition in log
    }
    ends = brokers.epoch_ends(topic, known)
    older = {  # the leader that knows no such epoch may be another one than the leader that gave the offsets
        partition
        for partition, epoch in known.items()
        if partition not in ends and NO_LEADER_EPOCH < log[partition].leader_epoch < epoch
    }
    newer = {partition for partition, epoch in known.items() if log[partition].leader_epoch > epoch}
    return {
        partition: agreed_end(
            offsets, ends.get(partition), has_older_epoch=partition in older, has_newer_epoch=partition in newer
        )
        for partition, offsets in log.items()
    }


def check_same_logs(source: TopicSource, planned: TopicDescription, plan: RangePlan) -> None:
    """Checks that the tasks read the topic, and the logs, that the plan was made for.

    A log whose leader epoch has risen since its offsets were told may have been cut and have grown again while the
    tasks read it.

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
