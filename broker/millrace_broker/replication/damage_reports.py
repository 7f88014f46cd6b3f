"""What becomes of damage that readers of a leader meet: followers tell where, and are answered so that they ask again.

    follower    an answer breaks a rule: nothing of it is taken, the next fetches say where it began
    leader      searches the segment that has the offset, on a worker, and sets the damage aside
    fetches     of the damaged range: KAFKA_STORAGE_ERROR, until the range is whole again

A leader checks what it sends of closed segments once (`storage.segments.checked_bytes`); a follower compares every CRC,
and knows from which offset on nothing may be missing. So the follower finds what has rotted since. Where the leader
finds nothing, its memory or the network was at fault: the follower asks again and has it whole.

The error is one after which all clients ask again. After CORRUPT_MESSAGE consumers of Java and kafka-python raise an
error; that is the answer where no other replica can have the records, so that nobody waits for them in silence.

One search runs at a time for each partition, and the next no sooner than `PAUSE_S` later. Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from millrace.errors import CorruptRecordError, ErrorCode, MillraceError
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica import Replica
from millrace_broker.storage import Log, TopicPartition

logger = logging.getLogger(__name__)

PAUSE_S = 10.0


def fetch_error(error: MillraceError, replica: Replica | None) -> int:
    """Returns the code of a failed fetch; for damage one that makes clients ask again, if there are other replicas."""
    is_only = isinstance(replica, Partition) and replica.in_sync is None
    if isinstance(error, CorruptRecordError) and not is_only:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return error.code


class DamageReports:
    """Searches logs for the damage that followers have reported."""

    def __init__(self) -> None:
        self._not_before_s: dict[TopicPartition, float] = {}
        self._searches: dict[TopicPartition, asyncio.Task[None]] = {}

    def hear(self, partitions: Mapping[TopicPartition, Partition], damaged: Mapping[TopicPartition, int]) -> None:
        """Begins to search led partitions from the offsets at which followers were sent damage."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._not_before_s = {key: due_s for key, due_s in self._not_before_s.items() if due_s > now_s}
        for key, offset in damaged.items():
            partition = partitions.get(key)
            if partition is not None and key not in self._searches and key not in self._not_before_s:
                self._not_before_s[key] = now_s + PAUSE_S
                self._searches[key] = loop.create_task(self._search(partition.log, offset))

    async def _search(self, log: Log, offset: int) -> None:
        name = log.topic_partition
        try:
            found = await asyncio.to_thread(log.set_damage_aside, offset)
            if not found and not log.damage:
                logger.warning("%s: a follower met damage at offset %d, and none is found there", name, offset)
        except MillraceError as error:
            logger.warning("%s: damage at offset %d can't be searched for: %s", name, offset, error)
        finally:
            self._searches.pop(name, None)
