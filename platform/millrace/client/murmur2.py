"""The partition of a key by Kafka's DefaultPartitioner, so that all clients agree.

partition = (murmur2(key) & 0x7fffffff) mod number of partitions
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Returns the partition that every client with Kafka's default partitioner gives to a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Returns Austin Appleby's MurmurHash2 with Kafka's seed, as an unsigned 32-bit integer."""
    hashed = SEED ^ len(data)
    body_end = len(data) & ~3
    for position in range(0, body_end, 4):
        word = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        hashed = (hashed * MULTIPLIER & MASK) ^ word
    tail = data[body_end:]
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return hashed ^ hashed >> 15
