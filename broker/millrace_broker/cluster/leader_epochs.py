"""Chooses the leader epochs with which a standalone broker begins to lead (KIP-101, KIP-320).

A broker that did not stop cleanly may have lost the end of its logs, and then appends other records at those offsets.
So the epoch is raised before any partition is led, as a controller raises it at every election. A consumer or a
load that has read in the older epoch can then ask where that one ends.

| the log, and how it was left | epoch |
|---|---|
| clean, nothing was cut | the stored one, or the newest in the log if that is higher |
| anything else, or no log | one above both |
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from millrace.errors import StorageError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.storage import Log, LogManager, TopicPartition

logger = logging.getLogger(__name__)


class LogHistory(NamedTuple):
    """The newest leader epoch in a log, -1 where it has none, and whether the log is as its leader left it."""

    newest_epoch: int
    is_whole: bool


NO_LOG = LogHistory(NO_LEADER_EPOCH, is_whole=False)


def raise_leader_epochs(store: LocalStore, broker_id: int, logs: LogManager) -> bool:
    """Raises and stores the epochs that the broker begins to lead with; returns whether they are stored.

    A full disk does not prevent the start, as each log then writes its epoch before it grows.
    """
    raised = raised_leader_epochs(store.image(), broker_id, logs)
    if not raised:
        return True
    logger.info("the leader epochs of %d partitions are raised", len(raised))
    try:
        store.raise_leader_epochs(raised)
    except StorageError as error:
        logs.write_epochs_first()
        logger.warning("the raised leader epochs are not stored, the next start raises them again: %s", error)
        return False
    return True


def leader_epoch_at_start(stored: int, history: LogHistory) -> int:
    """Returns the epoch to lead with; `stored` is that of the cluster's metadata."""
    known = max(stored, history.newest_epoch)
    return known if history.is_whole else known + 1


def raised_leader_epochs(image: MetadataImage, broker_id: int, logs: LogManager) -> dict[TopicPartition, int]:
    """Returns the new epochs of the partitions that this broker is about to lead and whose epochs must be raised."""
    raised: dict[TopicPartition, int] = {}
    for topic in image.topics.values():
        for one in topic.partitions:
            if one.leader == broker_id:
                key = TopicPartition(topic.name, one.index)
                log = logs.get(key) if logs.topic_id(key) in (None, topic.topic_id) else None
                epoch = leader_epoch_at_start(one.leader_epoch, NO_LOG if log is None else history_of(log))
                if epoch > one.leader_epoch:
                    raised[key] = epoch
    return raised


def history_of(log: Log) -> LogHistory:
    """Returns the history of a log that was just opened."""
    recovery = log.recovery
    is_whole = recovery.was_clean and not recovery.truncated_bytes and not recovery.dropped_segments
    return LogHistory(log.leader_epochs.newest_found, is_whole)
