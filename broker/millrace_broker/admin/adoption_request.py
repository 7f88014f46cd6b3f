"""Reads the requests that have a broker adopt a topic, and reserve producer ids (docs/maintenance.md).

    POST /strays/adopt
    {"topic": "weather", "topic_id": "4hZ3cCVbQg6Ie4GAHZpGkQ", "first_free_producer_id": 1001000, "config": {},
     "partitions": [{"leader": 1, "leader_epoch": 105, "replicas": [1, 2]}]}

    POST /strays/producer-ids
    {"first_free_producer_id": 1001000}

Partitions stand in the order of their indexes. Each error names the field.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from millrace.config import MAX_INT
from millrace.errors import InvalidRequestError
from millrace.leader_states import LAST_CHOSEN_LEADER_EPOCH
from millrace.uuids import NO_TOPIC_ID, decode_id, encode_id
from millrace_broker.admin.request_body import parse_body, shown
from millrace_broker.cluster.metadata_image import PartitionInfo, TopicInfo

MAX_PARTITIONS = 1000  # as many as fit into one transaction of ZooKeeper, which takes 1 MiB
MAX_PRODUCER_ID = (1 << 62) - 1  # ids above have been made up by clients
FIRST_FREE, CONFIG = "first_free_producer_id", "config"
ADOPTION_FIELDS = ("topic", "topic_id", "partitions", FIRST_FREE, CONFIG)
PARTITION_FIELDS = ("leader", "leader_epoch", "replicas")


class AdoptionRequest(NamedTuple):
    """A topic as it is to be, each partition with its leader as the only replica in sync, and free producer ids."""

    topic: TopicInfo
    first_free_producer_id: int


def read_adoption(body: bytes) -> AdoptionRequest:
    """Returns what a body asks for. Raises InvalidRequestError."""
    fields = _fields(body, ADOPTION_FIELDS, optional={CONFIG: {}})
    topic = TopicInfo(
        _text("topic", fields["topic"]),
        _topic_id(fields["topic_id"]),
        _partitions(fields["partitions"]),
        _config(fields[CONFIG]),
    )
    return AdoptionRequest(topic, _number(FIRST_FREE, fields[FIRST_FREE], MAX_PRODUCER_ID))


def read_first_free_producer_id(body: bytes) -> int:
    """Returns the id from which on a broker is to give producer ids. Raises InvalidRequestError."""
    return _number(FIRST_FREE, _fields(body, (FIRST_FREE,))[FIRST_FREE], MAX_PRODUCER_ID)


def _fields(body: bytes, names: Sequence[str], optional: Mapping[str, object] | None = None) -> Mapping[str, object]:
    return _object("the body", parse_body(body), names, optional or {})


def _object(what: str, found: object, names: Sequence[str], optional: Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(found, dict):
        raise InvalidRequestError(f"{what}: a JSON object is expected, not {shown(found)}")
    for name in found:
        if name not in names:
            raise InvalidRequestError(f"{what}: unknown field {shown(name)}, expected {', '.join(names)}")
    given = {**optional, **found}
    for name in names:
        if name not in given:
            raise InvalidRequestError(f"{what}: the field {name} is missing")
    return given


def _topic_id(value: object) -> UUID:
    text = _text("topic_id", value)
    try:
        topic_id = decode_id(text)
    except (ValueError, binascii.Error):
        topic_id = NO_TOPIC_ID
    if topic_id == NO_TOPIC_ID or encode_id(topic_id) != text:
        raise InvalidRequestError(f"topic_id: the 22 characters of an id are expected, not {shown(value)}")
    return topic_id


def _partitions(value: object) -> tuple[PartitionInfo, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_PARTITIONS:
        raise InvalidRequestError(f"partitions: a list of 1 to {MAX_PARTITIONS} partitions is expected")
    return tuple(_partition(index, one) for index, one in enumerate(value))


def _partition(index: int, value: object) -> PartitionInfo:
    what = f"partitions[{index}]"
    fields = _object(what, value, PARTITION_FIELDS, {})
    replicas = fields["replicas"]
    if not isinstance(replicas, list):
        raise InvalidRequestError(f"{what}.replicas: a list of brokers is expected, not {shown(replicas)}")
    brokers = tuple(_number(f"{what}.replicas", one, MAX_INT) for one in replicas)
    leader = _number(f"{what}.leader", fields["leader"], MAX_INT)
    if leader not in brokers:
        raise InvalidRequestError(f"{what}.leader: broker {leader} is none of the replicas {list(brokers)}")
    epoch = _number(f"{what}.leader_epoch", fields["leader_epoch"], LAST_CHOSEN_LEADER_EPOCH)
    return PartitionInfo(index, leader, epoch, brokers, (leader,))


def _config(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise InvalidRequestError(f"{CONFIG}: an object of texts is expected, not {shown(value)}")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequestError(f"{name}: a text is expected, not {shown(value)}")
    return value


def _number(name: str, value: object, largest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise InvalidRequestError(f"{name}: a number from 0 to {largest} is expected, not {shown(value)}")
    return value
