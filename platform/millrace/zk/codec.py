"""The JSON that lies in ZooKeeper's nodes, byte for byte in Apache Kafka's forms (docs/formats/metadata.md).

    /cluster/id               {"version":"1","id":"<22 characters>"}
    /brokers/ids/[id]         version 5: {"listener_security_protocol_map":{…},"endpoints":[…],…,"host":…,"port":…}
    /brokers/topics/[topic]   version 3: {"partitions":{"0":[1]},"topic_id":"<22 characters>",…}
    …/partitions/[n]/state    {"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}
    /config/topics/[topic]    {"version":1,"config":{…}}; /config/brokers/[id] the same
    /config/changes/[change]  {"version":2,"entity_path":"topics/[topic]"}

The 22 characters are the URL-safe base64 of an id's 16 bytes, without padding. Decoders take any version
whose fields they know, and raise ZooKeeperError for other documents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from millrace.addresses import Address
from millrace.errors import ZooKeeperError
from millrace.uuids import NO_TOPIC_ID, decode_id, encode_id

T = TypeVar("T")
PLAINTEXT = "PLAINTEXT"
FIRST_CONTROLLER_EPOCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A live broker, where clients reach it, and since when (milliseconds since the epoch)."""

    host: str
    port: int
    rack: str | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """A topic's id and, by partition, the brokers that keep it."""

    topic_id: UUID
    replicas: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The leader and the in-sync replicas of a partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int = FIRST_CONTROLLER_EPOCH

    @classmethod
    def initial(cls, replicas: tuple[int, ...]) -> PartitionState:
        """Returns the state of a new partition: the first replica leads, all are in sync."""
        return cls(leader=replicas[0], leader_epoch=0, isr=replicas)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Returns the data of the node `/cluster/id`."""
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """Returns the id in `/cluster/id`."""
    return _decoded(data, "cluster id", lambda fields: str(fields["id"]))


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Returns the data of the node `/brokers/ids/[id]`."""
    fields: dict[str, object] = {
        "listener_security_protocol_map": {PLAINTEXT: PLAINTEXT},
        "endpoints": [f"{PLAINTEXT}://{Address(broker.host, broker.port)}"],
        "jmx_port": -1,
        "features": {},
        "host": broker.host,
        "timestamp": str(broker.timestamp_ms),
        "port": broker.port,
        "version": 5,
    }
    return _dump(fields if broker.rack is None else {**fields, "rack": broker.rack})


def decode_broker(data: bytes) -> BrokerRegistration:
    """Returns the broker in `/brokers/ids/[id]`."""
    return _decoded(
        data,
        "broker registration",
        lambda fields: BrokerRegistration(
            host=str(fields["host"]),
            port=int(fields["port"]),
            rack=fields.get("rack"),
            timestamp_ms=int(fields["timestamp"]),
        ),
    )


def encode_topic(topic: TopicAssignment) -> bytes:
    """Returns the data of the node `/brokers/topics/[topic]`."""
    partitions = {str(index): list(replicas) for index, replicas in enumerate(topic.replicas)}
    return _dump(
        {
            "removing_replicas": {},
            "partitions": partitions,
            "topic_id": encode_id(topic.topic_id),
            "adding_replicas": {},
            "version": 3,
        }
    )


def decode_topic(data: bytes) -> TopicAssignment:
    """Returns the assignment in `/brokers/topics/[topic]`; versions 1 and 2 have no topic id."""
    return _decoded(data, "topic assignment", _topic)


def encode_partition_state(state: PartitionState) -> bytes:
    """Returns the data of the node `…/partitions/[n]/state`."""
    return _dump(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def decode_partition_state(data: bytes) -> PartitionState:
    """Returns the state in `…/partitions/[n]/state`."""
    return _decoded(
        data,
        "partition state",
        lambda fields: PartitionState(
            leader=int(fields["leader"]),
            leader_epoch=int(fields["leader_epoch"]),
            isr=tuple(int(replica) for replica in fields["isr"]),
            controller_epoch=int(fields["controller_epoch"]),
        ),
    )


def encode_config(config: Mapping[str, str]) -> bytes:
    """Returns the data of the node `/config/topics/[topic]` or `/config/brokers/[id]`."""
    return _dump({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """Returns the properties in `/config/topics/[topic]` or `/config/brokers/[id]`."""
    return _decoded(data, "topic config", lambda fields: {str(k): str(v) for k, v in fields["config"].items()})


def encode_config_change(entity_path: str) -> bytes:
    """Returns the data of the node `/config/changes/[change]`."""
    return _dump({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """Returns whose configuration was changed, such as `topics/[topic]`; version 1 has two fields for it."""
    return _decoded(data, "configuration change", _entity_path)


def _entity_path(fields: Mapping[str, Any]) -> str:
    return str(fields["entity_path"]) if fields["version"] == 2 else f"{fields['entity_type']}/{fields['entity_name']}"


def _topic(fields: Mapping[str, Any]) -> TopicAssignment:
    partitions = {int(index): tuple(int(one) for one in replicas) for index, replicas in fields["partitions"].items()}
    if set(partitions) != set(range(len(partitions))) or not all(partitions.values()):
        raise ValueError("partitions are not numbered from 0 without a gap, or have no replicas")
    topic_id = decode_id(fields["topic_id"]) if fields.get("topic_id") else NO_TOPIC_ID
    return TopicAssignment(topic_id=topic_id, replicas=tuple(partitions[index] for index in range(len(partitions))))


def _dump(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _decoded(data: bytes, what: str, build: Callable[[Mapping[str, Any]], T]) -> T:
    try:
        return build(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ZooKeeperError(f"not a {what}: {data[:200]!r}: {error}") from error
