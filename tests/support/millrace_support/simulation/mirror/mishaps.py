"""What happens to single answers and batches of a mirror on their way, in the seeds that have such upheavals."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from millrace.client.fetched import FetchedData
from millrace.records.batch import walk
from millrace_support.simulation.mirror.settings import Upheaval

if TYPE_CHECKING:
    from millrace_broker.storage import TopicPartition

CRC_COVERS = 21  # from this byte of a batch on
FLIPS, LOSES = 0.02, 0.25


class Mishaps:
    """Decides by a chance of its own. `damaged` are the partitions of which a fetched batch was damaged."""

    def __init__(self, seed: int = 0, upheaval: Upheaval = Upheaval.NONE) -> None:
        self.damaged: set[TopicPartition] = set()
        self._chance = Random(f"mishaps {seed}")  # noqa: S311  it decides faults, no secrets
        self._flips = upheaval is Upheaval.DAMAGED
        self._loses = upheaval is Upheaval.UNANSWERED

    def fetched(self, key: TopicPartition, answer: FetchedData) -> FetchedData:
        """Returns an answer of the source as it arrives."""
        records = self._flipped(bytes(answer.records))
        if records is None:
            return answer
        self.damaged.add(key)
        return answer._replace(records=records)

    def sent(self, records: bytes) -> bytes:
        """Returns batches as they come to the target."""
        return self._flipped(records) or records

    def loses_answer(self) -> bool:
        """Returns whether nobody hears that something was done."""
        return self._loses and self._chance.random() < LOSES

    def _flipped(self, records: bytes) -> bytes | None:
        """Returns batches with a bit flipped that a CRC covers, now and then; None where all is as it was."""
        if not self._flips or self._chance.random() >= FLIPS:
            return None
        whole = [(position, header.size_bytes) for position, header in walk(memoryview(records))]
        if not whole:
            return None
        position, size_bytes = self._chance.choice(whole)
        changed = bytearray(records)
        changed[position + self._chance.randrange(CRC_COVERS, size_bytes)] ^= 1 << self._chance.randrange(8)
        return bytes(changed)
