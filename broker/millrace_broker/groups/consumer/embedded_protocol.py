"""What classic consumers tell each other; the broker reads it when they share a group with new ones (KIP-848).

    subscription   version i16   0+  topics [string], user data bytes?
                                 1+  owned [topic string, partitions [i32]]   2+  generation i32   3+  rack string?
    assignment     version i16   0+  assigned [topic string, partitions [i32]], user data bytes?

A newer version is read as the newest that is known here: versions only add at the end.
Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millrace.errors import CorruptRecordError
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import INT32, Encoder

FIRST_VERSION_WITH_OWNED = 1
FIRST_VERSION_WITH_GENERATION = 2
FIRST_VERSION_WITH_RACK = 3
NEWEST_VERSION = 3
NULL = INT32.pack(-1)

Partitions = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member reads and owns. User data are for its own assignor, no other understands them."""

    version: int
    topic_names: frozenset[str]
    user_data: bytes | None = None
    owned: Partitions = field(default_factory=dict)
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """Returns the subscription; raises CorruptRecordError for other bytes."""
    decoder = Decoder(data)
    version = decoder.int16()
    topics = frozenset(decoder.string() for _ in range(decoder.array_length()))
    user_data = _nullable_bytes(decoder)
    owned: Partitions = {}
    rack_id = None
    if version >= FIRST_VERSION_WITH_OWNED:
        owned = _read_partitions(decoder)
    if version >= FIRST_VERSION_WITH_GENERATION:
        decoder.int32()
    if version >= FIRST_VERSION_WITH_RACK:
        rack_id = decoder.nullable_string()
    return Subscription(version, topics, user_data, owned, rack_id)


def subscription_version(data: bytes) -> int:
    """Returns the version of a subscription; 0, which every client reads, where the bytes are no subscription."""
    try:
        return read_subscription(data).version
    except CorruptRecordError:
        return 0


def read_assignment(data: bytes) -> tuple[Partitions, bytes | None]:
    """Returns partitions by topic and user data, `({}, None)` for no bytes; raises CorruptRecordError for others."""
    if not data:
        return {}, None
    decoder = Decoder(data)
    decoder.int16()
    return _read_partitions(decoder), _nullable_bytes(decoder)


def write_assignment(partitions: Partitions, version: int) -> bytes:
    """Returns an assignment in the form that a member with a subscription of this version reads."""
    out = Encoder(flexible=False)
    out.int16(min(version, NEWEST_VERSION))
    out.array_length(len(partitions))
    for topic, indexes in partitions.items():
        out.string(topic)
        out.int32_array(indexes)
    out.raw(NULL)
    return out.joined()


def _read_partitions(decoder: Decoder) -> Partitions:
    return {
        decoder.string(): [decoder.int32() for _ in range(decoder.array_length())]
        for _ in range(decoder.array_length())
    }


def _nullable_bytes(decoder: Decoder) -> bytes | None:
    size = decoder.int32()
    if size < 0:
        return None
    decoder.position -= INT32.size
    return decoder.bytes_()
