"""The records that wait for the next commit, by partition: when a batch is full, and what a rebalance changes in it.

Records of a partition that is lost go on waiting. To drop them would leave a gap before those that were handed out
right after them, and a commit does no harm: it leaves out what the output has by then (`from_offset`).

A partition that comes back begins at the output's offset, so its records may come again, from an offset that is still
waiting: then those that wait are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.client.consumer import Message
from millrace_pipelines.downstream.job import MicroBatchJob


class Pending:
    """The records of a batch that is not committed yet."""

    def __init__(self, job: MicroBatchJob) -> None:
        self._job = job
        self.clear()

    def clear(self) -> None:
        """Forgets the batch, so that the next one can begin."""
        self._messages: dict[int, list[Message]] = {}
        self._records = self._bytes = 0
        self._began_ms: int | None = None

    def add(self, message: Message, now_ms: int) -> None:
        """Adds a record. Where its offset does not follow the partition's waiting records, these are dropped first."""
        waiting = self._messages.setdefault(message.partition, [])
        if waiting and message.offset <= waiting[-1].offset:
            self._drop(message.partition)
            waiting = self._messages.setdefault(message.partition, [])
        if self._began_ms is None:
            self._began_ms = now_ms
        waiting.append(message)
        self._records += 1
        self._bytes += _size_bytes(message)

    def is_full(self, now_ms: int) -> bool:
        """Returns whether the batch has reached a bound of its job."""
        job, began_ms = self._job, self._began_ms
        if began_ms is None:
            return False
        return self._records >= job.max_records or self._bytes >= job.max_bytes or now_ms - began_ms >= job.max_wait_ms

    @property
    def messages(self) -> Mapping[int, list[Message]]:
        """The records of each partition, in the order of their offsets."""
        return self._messages

    def _drop(self, partition: int) -> None:
        dropped = self._messages.pop(partition)
        self._records -= len(dropped)
        self._bytes -= sum(map(_size_bytes, dropped))


def from_offset(messages: list[Message], offset: int) -> list[Message]:
    """Returns the records from an offset on; they ascend."""
    if not messages or messages[0].offset >= offset:
        return messages
    return [message for message in messages if message.offset >= offset]


def _size_bytes(message: Message) -> int:
    return len(message.key or b"") + len(message.value or b"")
