"""The last offset of each key, in a fixed amount of memory, for one compaction pass.

    slot  := digest u64 u64, offset + 1 u64      24 bytes; 0 stands for a free slot

Open addressing with double hashing (Knuth, TAOCP 3, 6.4, Algorithm D): half of the digest chooses the slot, the other
half the step, and a prime number of slots lets every step visit all of them. Keys are known by a 16-byte BLAKE2b
digest only, as in Kafka's SkimpyOffsetMap; that hash is collision resistant, so no producer can make a key whose
records supersede those of another one.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from math import isqrt
from mmap import mmap

SLOT_BYTES = 24
LOAD_FACTOR = 0.75
MIN_SLOTS = 5

_DIGEST = struct.Struct("<QQ")


class OffsetMap:
    """A map from each key to the largest offset put for it; it is full at three quarters of its slots."""

    def __init__(self, max_bytes: int, max_keys: int) -> None:
        """Has room for `max_keys`, or for as many as fit in `max_bytes`."""
        wanted = min(max_bytes // SLOT_BYTES, int(max_keys / LOAD_FACTOR) + MIN_SLOTS)
        self._slots = _prime_up_to(max(wanted, MIN_SLOTS))
        self.capacity = int(self._slots * LOAD_FACTOR)
        self._lows, self._highs, self._ends = (_zeros(self._slots) for _ in range(3))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, key: bytes, offset: int) -> bool:
        """Puts a key's offset, which must not be below an earlier one; returns false where a new key finds no room."""
        low, high = _digest(key)
        slot = self._slot(low, high)
        if not self._ends[slot]:
            if self._size >= self.capacity:
                return False
            self._size += 1
            self._lows[slot], self._highs[slot] = low, high
        self._ends[slot] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """Returns the offset of a key; -1 where none was put."""
        return self._ends[self._slot(*_digest(key))] - 1

    def _slot(self, low: int, high: int) -> int:
        """Returns the key's slot, or the free one that it would take."""
        slots, ends, lows, highs = self._slots, self._ends, self._lows, self._highs
        slot = low % slots
        step = 0
        while ends[slot] and (lows[slot] != low or highs[slot] != high):
            step = step or 1 + high % (slots - 1)
            slot = (slot + step) % slots
        return slot


def _digest(key: bytes) -> tuple[int, int]:
    low, high = _DIGEST.unpack(blake2b(key, digest_size=16).digest())
    return low, high


def _zeros(count: int) -> memoryview:
    """Returns integers in memory that the operating system provides page by page, as it is touched."""
    return memoryview(mmap(-1, 8 * count)).cast("Q")


def _prime_up_to(number: int) -> int:
    """Returns the largest prime that is not above `number`, which is at least 2."""
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number -= 1
    return number
