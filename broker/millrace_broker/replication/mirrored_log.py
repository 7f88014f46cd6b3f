"""The log of a led partition as a mirror writes it: with the offsets, producers and markers of another cluster's log.

    mirror ──(log end offset that it expects, batches)──► the leader's log, as a follower appends ──► its followers

The topic has the property `mirror.source`. A batch keeps all its bytes but the leader epoch, which no CRC covers: that
becomes the leader's own. Offsets that the source's compaction has left out are left out here too.

Where the log does not end at the expected offset, nothing is appended (compare and set). So of two mirrors, or of a
request that is sent twice, one wins, and the other learns where the log ends. Large requests are appended in pieces,
each compared by itself, between which others are served.

An empty log begins at the source's log start if that lies above its end. That changes files, as does the first gap: a
worker of the data directory does it, and holds the log meanwhile.

Mirroring ends with an ABORT marker for each open transaction and a control batch (`records.control`), at which every
replica forgets the source's producers, also as it recovers: their ids may be given to others here. To end the mirroring
again changes nothing. A mirror that has not seen the end expects the log to end before it, and can append nothing; one
that is given the topic again, as by a switch-back, goes on behind it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

from millrace.errors import OffsetOutOfRangeError, PolicyViolationError
from millrace.records.batch import HEADER_BYTES, NO_OFFSET, Buffer, placed, read_header, walk
from millrace.records.control import (
    ControlType,
    EndTransactionMarker,
    decode_mirror_end,
    encode_marker,
    encode_mirror_end,
    is_mirror_end,
)
from millrace.turns import pause
from millrace_broker.replication.delayed_requests import Appended
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import AppendWaitsError
from millrace_broker.storage.producers.producer_state import ProducerEntry

PIECE_BYTES = 1 << 20
LEADER_EPOCH_POSITION = 12
_LEADER_EPOCH = struct.Struct(">i")
MIRROR_END_BYTES = 256  # a last batch above this size is no mirror's end
FIRST_COORDINATOR_EPOCH = 0


class Piece(NamedTuple):
    """Neighbouring whole batches of a request, and how many records they have."""

    batches: memoryview
    records: int


def pieces(records: Buffer) -> Iterator[Piece]:
    """Yields whole batches, together up to `PIECE_BYTES` or one larger one; leaves out a last one that is cut short.

    Raises RecordError for bytes that are no batches.
    """
    view = memoryview(records)
    start = end = count = 0
    for position, header in walk(view):
        if end > start and position + header.size_bytes - start > PIECE_BYTES:
            yield Piece(view[start:end], count)
            start, count = position, 0
        end, count = position + header.size_bytes, count + header.record_count
    if end > start:
        yield Piece(view[start:end], count)


def led_in(leader_epoch: int, batches: Buffer) -> bytearray:
    """Returns a copy of whole batches, each with this leader epoch."""
    stamped = bytearray(batches)
    for position, _ in walk(batches):
        _LEADER_EPOCH.pack_into(stamped, position + LEADER_EPOCH_POSITION, leader_epoch)
    return stamped


def ending(producers: Iterable[ProducerEntry], end_offset: int, topic_id: UUID, now_ms: int) -> bytes:
    """Returns the batches that end the mirroring into a log that ends at `end_offset`, with their offsets."""
    batches = [
        encode_marker(
            EndTransactionMarker(ControlType.ABORT, max(one.coordinator_epoch, FIRST_COORDINATOR_EPOCH)),
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            timestamp_ms=now_ms,
        )
        for one in producers
        if one.has_open_transaction
    ]
    batches.append(encode_mirror_end(topic_id, timestamp_ms=now_ms))
    at_offsets: list[bytes] = []
    for offset, batch in enumerate(batches, end_offset):
        place = placed(read_header(batch), offset, leader_epoch=0)
        at_offsets += (place, batch[len(place) :])
    return b"".join(at_offsets)


def refusal(partition: Partition) -> PolicyViolationError:
    """Returns the error for those who would write a mirrored partition as any other."""
    topic = partition.log.topic_partition.topic
    return PolicyViolationError(
        f"{topic} is written by the mirror {partition.mirror} alone: write at its source, or switch over to this "
        "cluster first"
    )


class MirroredLog:
    """A partition's log for one request of a mirror; `led` returns the partition, or raises as it is not led here."""

    def __init__(self, replicas: ReplicaManager, led: Callable[[], Partition]) -> None:
        self._replicas = replicas
        self._led = led

    async def append(self, records: Buffer, *, log_start_offset: int, log_end_offset: int) -> None:
        """Appends batches where the log ends at `log_end_offset`; what was appended before an error stays.

        Raises OffsetOutOfRangeError where it ends elsewhere, PolicyViolationError where the topic is not mirrored, and
        what `led` and `Log.append_as_follower` raise.
        """
        partition = await self._free()
        _check_mirrored(partition)
        end_offset = await self._begin(log_start_offset, log_end_offset)
        for piece in pieces(records):
            pause()
            end_offset = await self._append(piece, end_offset)

    async def end(self, log_end_offset: int, now_ms: int) -> Appended:
        """Ends the mirroring, unless it has ended, and returns what replicas have to have; -1 takes any log end.

        Raises what `append` raises.
        """
        partition = await self._free()
        if not _has_ended(partition):
            _check_mirrored(partition)
            end_offset = partition.log.log_end_offset if log_end_offset == NO_OFFSET else log_end_offset
            entries = partition.log.producers.entries.values()
            for piece in pieces(ending(entries, end_offset, partition.topic_id, now_ms)):
                end_offset = await self._append(piece, end_offset)
        partition = self._led()
        return Appended(partition.leader_epoch, partition.log.log_end_offset)

    async def _free(self) -> Partition:
        partition = self._led()
        await partition.until_free()
        return self._led()

    def _at(self, end_offset: int) -> Partition:
        partition = self._led()
        _check_mirrored(partition)
        partition.check_in_sync_replicas()
        if partition.log.log_end_offset != end_offset:
            raise OffsetOutOfRangeError(
                f"{partition.log.topic_partition} ends at {partition.log.log_end_offset}, not at {end_offset}: "
                "nothing was appended"
            )
        return partition

    async def _begin(self, log_start_offset: int, end_offset: int) -> int:
        """Has an empty log begin at the source's log start, if that lies above its end; returns the log's end."""
        log = self._at(end_offset).log
        if log_start_offset <= end_offset or log.log_start_offset < end_offset:
            return end_offset
        partition = await self._free_at(end_offset)
        start = partial(
            self._replicas.logs.truncate_fully_and_start_at, partition.log.topic_partition, log_start_offset
        )
        await self._on_worker(partition, start)
        return log_start_offset

    async def _append(self, piece: Piece, end_offset: int) -> int:
        """Appends whole batches at the log's end, and returns where it ends then."""
        partition = self._at(end_offset)
        try:
            self._write(partition, piece, may_wait=False)
        except AppendWaitsError:
            partition = await self._free_at(end_offset)
            kept = Piece(memoryview(bytes(piece.batches)), piece.records)
            await self._on_worker(partition, partial(self._write, partition, kept, may_wait=True))
        self._replicas.mirrored(partition, len(piece.batches), piece.records)
        return partition.log.log_end_offset

    @staticmethod
    def _write(partition: Partition, piece: Piece, *, may_wait: bool) -> None:
        epoch = partition.leader_epoch
        partition.log.append_as_follower(led_in(epoch, piece.batches), leader_epoch=epoch, may_wait=may_wait)

    async def _free_at(self, end_offset: int) -> Partition:
        await self._free()
        return self._at(end_offset)

    def _on_worker(self, partition: Partition, work: Callable[[], None]) -> asyncio.Future[None]:
        """Runs work that waits for the disk, and holds the log until it has ended, even if the client is gone."""
        partition.hold()
        done = asyncio.wrap_future(self._replicas.logs.in_lane(partition.log, work))
        done.add_done_callback(partial(self._let_go, partition))
        return asyncio.shield(done)

    def _let_go(self, partition: Partition, done: asyncio.Future[None]) -> None:
        partition.let_go()
        self._replicas.mirrored(partition, 0, 0)
        if not done.cancelled():
            done.exception()  # is raised where the work is awaited, if anybody does


def _check_mirrored(partition: Partition) -> None:
    if not partition.mirror:
        topic = partition.log.topic_partition.topic
        raise PolicyViolationError(f"{topic} is not mirrored: it has no mirror.source, so producers may write it")


def _has_ended(partition: Partition) -> bool:
    """Returns whether the log's last batch ends the mirroring into this very topic."""
    log = partition.log
    end = log.log_end_offset
    if end <= log.log_start_offset:
        return False
    last = log.read_or_find(end - 1, 1, up_to_offset=end, at_least_one=True, read_at_once_bytes=MIRROR_END_BYTES)
    if not isinstance(last, bytes) or len(last) < HEADER_BYTES:
        return False
    header = read_header(last)
    return is_mirror_end(header) and decode_mirror_end(header, memoryview(last)) == partition.topic_id
