"""The values of random requests: mostly what a broker knows, by the name of the field; else limits of the type.

    integers    what such a field usually has, limits of the type, and special values (timestamps, offsets, epochs)
    strings     topics, groups, members, properties and their values, patterns; odd ones
    bytes       what consumers tell each other; record batches of every codec, message sets, similar bytes, blocks that
                would grow without bounds

A test that drives a broker adds the ids that it answers: `topic_ids`, `members`.
"""

from __future__ import annotations

import zlib
from collections import deque
from functools import cache
from random import Random
from uuid import UUID

import zstandard

from millrace.records.batch import CRC_POSITION, HEADER_BYTES, MAGIC_V2, TRANSACTIONAL_FLAG, compute_crc
from millrace.records.compression import Codec, compress
from millrace.records.control import ControlType, EndTransactionMarker, encode_marker
from millrace.records.message_set import encode_message_set
from millrace.records.record import BatchProducer, NewRecord, Record, encode_batch
from millrace.wire.encoder import Encoder

TOPICS = ("events", "many", "compacted", "old", "nowhere")
GROUPS = ("g0", "g1", "g2", "c0", "c1", "c2")
CONSUMER = "consumer"
ODD_TEXTS = ("", " ", ".", "..", "a/b", "\x00", "x" * 249, "x" * 250, "y" * 5000, "é" * 300, "\U0001f600", "-1",
             "\ud800", "__consumer_offsets", "__transaction_state", "__proto__", "a" * 32767, "b" * 40_000)  # fmt: skip
PATTERNS = ("e.*", "(a+)+$", "[", "(?P<x>e)(?P=x)", "x{1000000}", "(((((((((((e*)*)*)*)*)*)*)*)*)*)*", "\\p{L}+", "")
PROPERTIES = ("retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "min.insync.replicas", "flush.ms",
              "compression.type", "message.timestamp.type", "no.such", "index.interval.bytes",
              "log.retention.ms")  # fmt: skip
VALUES = ("1", "-1", "0", "compact", "delete", "compact,delete", "1048576", "99999999999999999999", "gzip",
          "LogAppendTime", "x", "1e9", "NaN", "٣", " 7", "true")  # fmt: skip
_TEXTS = {
    "group_id": GROUPS, "groups": GROUPS, "groups_names": GROUPS, "group_ids": GROUPS, "key": GROUPS,
    "coordinator_keys": GROUPS, "group_instance_id": ("", "i0", "i1"), "instance_id": ("", "i0", "i1"),
    "protocols.name": ("range", "roundrobin"), "configs.name": PROPERTIES, "configuration_keys": PROPERTIES,
    "resource_name": (*TOPICS, "1", "", "01"), "value": VALUES, "protocol_type": (CONSUMER, "connect"),
    "protocol_name": ("range", "roundrobin"), "server_assignor": ("range", "uniform", "best"),
    "subscribed_topic_regex": PATTERNS, "states_filter": ("Stable", "Empty", "stable"), "client_id": ("fuzz", "c"),
    "types_filter": ("classic", "consumer"),
    "transactional_id": ("t",), "client_software_name": ("fuzz",), "client_software_version": ("1.0",),
}  # fmt: skip
_INTEGERS = {
    "session_timeout": (6000, 30_000, 1_800_000), "rebalance_timeout": (0, 100, 60_000, 2**31 - 1), "acks": (1, 1, -1,
    0),
    "partition_index": (0, 0, 0, 1, 2, 3), "partition": (0, 0, 0, 1, 2, 3), "index": (0, 0, 0, 1, 2, 3),
    "partitions": (0, 0, 1, 2), "partition_indexes": (0, 0, 1, 2), "election_type": (0, 1), "endpoint_type": (1, 2),
    "current_leader_epoch": (-1, -1, 0, 1), "leader_epoch": (-1, 0, 1), "fetch_offset": (0, 0, 1, 5, 1000),
    "offset": (0, 1, -1, 5), "last_fetched_epoch": (-1, -1, 0), "producer_id": (-1, 5), "producer_epoch": (-1, 0),
    "num_partitions": (1, 2, 3, -1), "replication_factor": (1, -1), "count": (1, 2, 3, 4), "max_wait": (0, 0, 1, 500),
    "max_bytes": (1 << 20, 1, 2**31 - 1), "partition_max_bytes": (1 << 20, 1), "min_bytes": (0, 1, 1 << 20),
    "resource_type": (2, 4, 8), "config_operation": (0, 1, 2, 3), "timestamp": (-1, -2, -3, -4, -5, -6, 0, 2**62),
    "member_epoch": (0, 1, 2, 3, -1, -2), "generation_id": (-1, 0, 1, 2, 3), "key_type": (0, 1), "replica_id": (-1, 0),
    "generation_id_or_member_epoch": (-1, 0, 1, 2), "max_num_offsets": (1, 2), "broker_ids": (1,),
    "isolation_level": (0, 1),
    "session_epoch": (-1, 0, 1), "session_id": (0, 1), "timeout": (0, 100, 30_000), "response_partition_limit": (1,
    2000),
}  # fmt: skip
_LIMITS = (0, 1, -1, -2, 2, 3, 10, 127, -128)
_RECORDS = [NewRecord(bytes(30 + index), b"key %d" % index, 10**12, (("h", b"x"),)) for index in range(5)]
_OLD_RECORDS = [Record(index, 1000 + index, b"key", bytes(30)) for index in range(4)]
BOMB_BYTES = 64 << 20


class Words:
    """Chooses values for fields."""

    def __init__(self) -> None:
        self.topic_ids: list[UUID] = [UUID(int=0), UUID(int=7)]
        self.paths = ["/"]
        self.members: deque[str] = deque(["", "m0", "m1"], maxlen=60)
        self._blobs = _blobs()

    def count(self, random: Random, *, is_nullable: bool) -> int | None:
        """Returns the length of an array: None where it may be null, rarely a very large number."""
        if is_nullable and random.random() < 0.15:
            return None
        return random.choice((50, 300)) if random.random() < 0.001 else random.choice((0, 1, 1, 1, 2, 3))

    def integer(self, random: Random, name: str, bits: int) -> int:
        """Returns an integer within its type."""
        usual = _INTEGERS.get(name)
        if usual is not None and random.random() < 0.85:
            return random.choice(usual)
        if random.random() < 0.85:
            return random.choice(_LIMITS)
        largest = (1 << (bits - 1)) - 1
        return random.choice((largest, -largest - 1, largest - 1, random.randint(-largest, largest)))

    def uuid(self, random: Random) -> UUID:
        """Returns a topic's id, mostly that of a topic that exists."""
        return random.choice(self.topic_ids)

    def text(self, random: Random, name: str, inside: str, *, is_nullable: bool) -> str | None:
        """Returns a string for a field inside the structure of that name, or None where it may be null."""
        if is_nullable and random.random() < (0.9 if name == "transactional_id" else 0.3):
            return None
        if random.random() < 0.05:
            return random.choice(ODD_TEXTS)
        if name == "member_id":
            return random.choice(self.members)
        if name == "path":
            return random.choice(self.paths)
        return random.choice(_TEXTS.get(f"{inside}.{name}") or _TEXTS.get(name, TOPICS))

    def blob(self, random: Random, name: str, *, is_nullable: bool) -> bytes | None:
        """Returns bytes, damaged half of the time; the checksum of a damaged batch is sometimes corrected."""
        if random.random() < 0.03:
            return None if is_nullable else b""
        good = random.choice(self._blobs.get(name, self._blobs["metadata"]))
        if random.random() < 0.5 or not good:
            return good
        bad = bytearray(good)
        for _ in range(random.randint(1, 3)):
            bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
        if random.random() < 0.2:
            del bad[random.randrange(len(bad)) :]
        return bytes(bad if random.random() < 0.2 else sealed(bad))


@cache
def _blobs() -> dict[str, list[bytes]]:
    return {
        "records": [*_batches(), *_message_sets()],
        "metadata": [_subscription(version) for version in range(4)],
        "assignment": [_assignment()],
    }


def sealed(records: bytearray) -> bytearray:
    """Returns a batch or a message with the checksum of its bytes."""
    if len(records) >= HEADER_BYTES and records[16] == MAGIC_V2:
        records[CRC_POSITION : CRC_POSITION + 4] = compute_crc(records, 0, len(records)).to_bytes(4, "big")
    elif len(records) > 26:
        records[12:16] = zlib.crc32(records[16:]).to_bytes(4, "big")
    return records


def _batches() -> list[bytes]:
    batches = [encode_batch(_RECORDS, codec=codec) for codec in Codec]
    batches += [encode_batch(_RECORDS[:1], producer=BatchProducer(5, 0, sequence)) for sequence in (0, 1, 2**31 - 1)]
    batches.append(encode_batch(_RECORDS, flags=TRANSACTIONAL_FLAG))
    marker = EndTransactionMarker(ControlType.ABORT, 1)
    batches.append(encode_marker(marker, producer_id=1, producer_epoch=0, timestamp_ms=0))
    batches += [b"", batches[0] + batches[1], batches[0] * 3]
    return batches + [_bomb(codec) for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)]


def _bomb(codec: Codec) -> bytes:
    """Returns a batch of one record, few bytes whose block decompresses to far more than `max.message.bytes`."""
    if codec is Codec.ZSTD:
        block = zstandard.ZstdCompressor(3).compress(bytes(BOMB_BYTES))
    else:
        block = compress(codec, bytes(BOMB_BYTES if codec is Codec.LZ4 else BOMB_BYTES // 16))
    whole = bytearray(encode_batch(_RECORDS[:1], codec=codec)[:HEADER_BYTES] + block)
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    return bytes(sealed(whole))


def _message_sets() -> list[bytes]:
    codecs = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    return [encode_message_set(_OLD_RECORDS, magic=magic, codec=codec) for magic in (0, 1) for codec in codecs]


def _subscription(version: int) -> bytes:
    out = Encoder(flexible=False)
    out.int16(version)
    _strings(out, TOPICS[:2])
    out.bytes_(b"data")
    if version >= 1:
        _owned(out)
    if version >= 2:
        out.int32(1)
    if version >= 3:
        out.string(None)
    return out.joined()


def _assignment() -> bytes:
    out = Encoder(flexible=False)
    out.int16(0)
    _owned(out)
    out.bytes_(b"")
    return out.joined()


def _owned(out: Encoder) -> None:
    out.array_length(1)
    out.string(TOPICS[0])
    out.int32_array((0, 1))


def _strings(out: Encoder, values: tuple[str, ...]) -> None:
    out.array_length(len(values))
    for value in values:
        out.string(value)
