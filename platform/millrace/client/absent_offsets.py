"""Whether compaction explains that offsets are absent from what a log's leader answers.

    topic                      offsets that no batch has
    compacted                  compaction removed their records, if they lie below the log's end
    not compacted, or unknown  damage, or a topic that was compacted before: MissingOffsetsError

A log that nobody compacts has each offset up to its end. So where one is absent, a batch was lost or says wrong
offsets, and whoever went on would take a log without these records for a whole one. The topic is asked for at its first
gap only, and the log's end where a gap reaches beyond what is known of it.

Missing offsets may be accepted, but only those that are: a damaged base offset makes good batches look like a gap. So
the log is asked for the gap's last offset, and has to answer with what comes later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from millrace.client.configs import Configs
from millrace.errors import ErrorCode, MillraceError, RecordError

if TYPE_CHECKING:
    from millrace.client.cluster import Cluster
    from millrace.records.intervals import Interval

logger = logging.getLogger(__name__)

CLEANUP_POLICY = "cleanup.policy"
COMPACT = "compact"
WAY_ON = "the option to accept missing offsets goes on behind them"


class MissingOffsetsError(RecordError, code=ErrorCode.CORRUPT_MESSAGE):
    """A log's leader has no batch with these offsets, and compaction does not explain it."""


class AbsentOffsets:
    """Judges the gaps in what is read of a cluster.

    Args:
        cluster: Returns the cluster, for as long as the context.
        log_end: Returns where a partition's log ends.
        serves: Returns whether a partition's leader has records in an interval after all.
        accept: Whether to go on past offsets that are missing, with a warning.
    """

    def __init__(
        self,
        cluster: Callable[[], AbstractContextManager[Cluster]],
        log_end: Callable[[Cluster, str, int], int],
        serves: Callable[[Cluster, str, int, Interval], bool],
        *,
        accept: bool = False,
    ) -> None:
        self._cluster = cluster
        self._log_end = log_end
        self._serves = serves
        self.accept = accept
        self._compacted: set[str] = set()
        self._known_ends: dict[tuple[str, int], int] = {}

    def check(self, topic: str, partition: int, gap: Interval, *, is_inside: bool = False) -> None:
        """Raises MissingOffsetsError for a gap that compaction does not explain, unless it is one and accepted.

        `is_inside` says that some offsets of a batch are missing, of which the gap has all.
        """
        reason = self._unexplained(topic, partition, gap)
        if reason is None:
            return
        message = f"{topic}-{partition}: offsets among {gap} are missing, and {reason}"
        if not self.accept:
            raise MissingOffsetsError(f"{message}; {WAY_ON}")
        with self._cluster() as cluster:
            if not is_inside and self._serves(cluster, topic, partition, gap):
                raise MissingOffsetsError(f"{message}; the log has some of them: a batch's base offset is wrong")
        logger.warning("%s", message)

    def _unexplained(self, topic: str, partition: int, gap: Interval) -> str | None:
        """Returns why compaction does not explain a gap; None where it does."""
        if topic in self._compacted and gap.until_offset <= self._known_ends.get((topic, partition), 0):
            return None
        try:
            with self._cluster() as cluster:
                if topic not in self._compacted and not is_compacted(cluster, topic):
                    return "the topic is not compacted: batches are lost or damaged (millrace verify tells more)"
                self._compacted.add(topic)
                end_offset = self._known_ends[topic, partition] = self._log_end(cluster, topic, partition)
        except MillraceError as error:
            return f"whether compaction explains it can't be asked: {error}"
        return None if gap.until_offset <= end_offset else f"the log ends at offset {end_offset}: a batch is damaged"


def is_compacted(cluster: Cluster, topic: str) -> bool:
    """Returns whether compaction removes records of the topic now; raises UnknownTopicError or BrokerError."""
    described = Configs(cluster).describe_topics([topic], [CLEANUP_POLICY])[topic]
    policy = described.get(CLEANUP_POLICY)
    return policy is not None and COMPACT in (policy.value or "").split(",")
