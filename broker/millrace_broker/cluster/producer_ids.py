"""Gives producer ids, each of them once, also after a crash (KIP-98).

    /latest_producer_id_block      {"version":1,"broker":1,"block_start":"0","block_end":"999"}

A broker reserves a block of a thousand ids in the cluster's store before it gives the first of them. Ids of the block
that it has not given when it ends are never given. The node in ZooKeeper and its document are Kafka's; a standalone
broker keeps the same document in the file `latest_producer_id_block` of its first data directory, and syncs it before
it uses the block. Logs that came from another cluster may know producers already, so a new block begins above all ids
that the broker's logs know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from millrace.config import MAX_LONG
from millrace.errors import ProducerIdsExhaustedError, StorageError

BLOCK_SIZE = 1000
VERSION = 1

Reserve = Callable[[int], range]


class ProducerIds:
    """Gives out producer ids, each once, from blocks that the cluster has reserved for this broker.

    Args:
        reserve: reserves the next block, at or above the id that it is given; blocks, so a worker thread calls it.
        first_free: returns the id above all that this broker's logs know.
    """

    def __init__(self, reserve: Reserve, first_free: Callable[[], int]) -> None:
        self._reserve = reserve
        self._first_free = first_free
        self._left = iter(range(0))
        self._reserving = asyncio.Lock()

    async def take(self) -> int:
        """Returns a new id. Raises StorageError or ZooKeeperError if no block can be got, ProducerIdsExhaustedError."""
        while (producer_id := next(self._left, None)) is None:
            async with self._reserving:
                # Another request may have reserved a block while this one waited for the lock.
                if (producer_id := next(self._left, None)) is not None:
                    return producer_id
                self._left = iter(await asyncio.to_thread(self._reserve, self._first_free()))
        return producer_id

    async def skip_to(self, first: int) -> None:
        """Gives only ids from `first` on. Raises StorageError, ZooKeeperError or ProducerIdsExhaustedError."""
        async with self._reserving:
            self._left = iter(await asyncio.to_thread(self._reserve, max(first, self._first_free())))


def next_block(last: bytes | None, at_least: int) -> range:
    """Returns the next block of ids, from `at_least` on; `last` is the stored document of the last block, if any.

    Raises StorageError for a document that can't be read, ProducerIdsExhaustedError where no block is left.
    """
    start = max(_block_end(last) + 1 if last else 0, at_least)
    if start > MAX_LONG - BLOCK_SIZE:
        raise ProducerIdsExhaustedError(f"the next block would begin at {start}")
    return range(start, start + BLOCK_SIZE)


def encode_block(broker_id: int, block: range) -> bytes:
    """Returns the JSON document of a reserved block, `{"version":1,"broker":…,"block_start":…,"block_end":…}`."""
    fields = {
        "version": VERSION, "broker": broker_id, "block_start": str(block.start), "block_end": str(block.stop - 1),
    }  # fmt: skip
    return json.dumps(fields, separators=(",", ":")).encode()


def _block_end(data: bytes) -> int:
    try:
        return int(json.loads(data)["block_end"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"latest_producer_id_block is not understood: {data[:200]!r}") from error
