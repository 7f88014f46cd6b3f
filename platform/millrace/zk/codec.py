"""The JSON that lies in ZooKeeper's nodes, byte for byte in Apache Kafka's forms (docs/formats/metadata.md).

    /cluster/id               {"version":"1","id":"<22 characters>"}
    /brokers/ids/[id]         version 5: {"listener_security_protocol_map":{…},"endpoints":[…],…,"host":…,"port":…}
    /brokers/topics/[topic]   version 3: {"partitions":{"0":[1]},"topic_id":"<22 characters>",…}
    …/partitions/[n]/state    {"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}, and
                              "leader_recovery_state":1 after an unclean election
    /config/topics/[topic]    {"version":1,"config":{…}}; /config/brokers/[id] the same
    /config/changes/[change]  {"version":2,"entity_path":"topics/[topic]"}

    /kafka-acl/[Type]/[name]              {"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",
                                          "operation":"Read","host":"*"}]}; that of a prefix is the same
    /kafka-acl-changes/acl_changes_[n]    TOPIC:orders, which is not JSON
    /kafka-acl-extended-changes/…         {"version":1,"resourceType":"TOPIC","name":"orders","patternType":"PREFIXED"}

The nodes that a controller and its brokers write to each other:

    /controller                         {"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}
    /controller_epoch                   7
    /isr_change_notification/[change]   {"version":1,"partitions":[{"topic":"t","partition":0}]}
    /admin/preferred_replica_election   the same
    /log_dir_event_notification/[event] {"version":1,"broker":1,"event":1}
    /admin/reassign_partitions          {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}

The 22 characters are the URL-safe base64 of an id's 16 bytes, without padding. Decoders take any version
whose fields they know, and raise ZooKeeperError for other documents.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import index as whole
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from millrace.addresses import PLAINTEXT, Endpoint, plaintext_endpoint
from millrace.errors import ZooKeeperError
from millrace.leader_states import RECOVERED, leader_epoch
from millrace.security.acls import Acl, AclOperation, PatternType, PermissionType, ResourcePattern
from millrace.uuids import NO_TOPIC_ID, decode_id, encode_id

T = TypeVar("T")
FIRST_CONTROLLER_EPOCH = 1
FEATURES = {
    "metadata.version": {"min_version": 1, "max_version": 21},
    "kraft.version": {"min_version": 0, "max_version": 1},
    "group.version": {"min_version": 1, "max_version": 1},
    "transaction.version": {"min_version": 1, "max_version": 2},
}
"""What a broker registers.

The first two are those of Apache Kafka 3.9, whose controller ignores a broker that lacks what `/feature` has finalized.
By the others brokers find out whether each of them supports what clients may be offered.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A live broker, where clients of each listener reach it, and since when (milliseconds since the epoch).

    `registers_again` says that the broker registers again if another client deletes its node; Apache Kafka's don't.
    `min_insync_replicas` is the broker's own default for topics; a broker that gives it also says, before it registers,
    what it has lost since its last stop. It is None for brokers that do neither.
    """

    endpoints: tuple[Endpoint, ...]
    rack: str | None
    timestamp_ms: int
    registers_again: bool = False
    min_insync_replicas: int | None = None

    def endpoint_of(self, security_protocol: str) -> Endpoint | None:
        """Returns the first endpoint with a security protocol; None where the broker has none."""
        return next((one for one in self.endpoints if one.security_protocol == security_protocol), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """A topic's id and, by partition, the brokers that keep it.

    While a partition is reassigned, its replicas are its new ones and then the old ones that it is to lose (KIP-455).
    By the partition's index, `adding_replicas` has the ones that it gets, `removing_replicas` those that it loses.
    """

    topic_id: UUID
    replicas: tuple[tuple[int, ...], ...]
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The in-sync replicas of a partition and its leader, which is -1 for none, and -2 while the topic is deleted.

    `leader_recovery_state` is 1 from an unclean election until the leader has recovered (KIP-704).
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int = FIRST_CONTROLLER_EPOCH
    leader_recovery_state: int = RECOVERED

    @classmethod
    def initial(cls, replicas: tuple[int, ...]) -> PartitionState:
        """Returns the state of a new partition: the first replica leads, all are in sync."""
        return cls(leader=replicas[0], leader_epoch=0, isr=replicas)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Returns the data of the node `/cluster/id`."""
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """Returns the cluster id in the data of `/cluster/id`; raises ZooKeeperError for other data."""
    return decoded(data, "cluster id", lambda fields: str(fields["id"]))


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Returns the data of the node `/brokers/ids/[id]`.

    Old clients read `host` and `port`, which are those of an endpoint in PLAINTEXT, else null and -1.
    """
    plaintext = broker.endpoint_of(PLAINTEXT)
    fields: dict[str, object] = {
        "listener_security_protocol_map": {one.listener: one.security_protocol for one in broker.endpoints},
        "endpoints": [str(one) for one in broker.endpoints],
        "jmx_port": -1,
        "features": FEATURES,
        "host": None if plaintext is None else plaintext.host,
        "timestamp": str(broker.timestamp_ms),
        "port": -1 if plaintext is None else plaintext.port,
        "version": 5,
    }
    if broker.registers_again:
        fields["registers_again"] = True  # a field that Apache Kafka passes over, as the next one
    if broker.min_insync_replicas is not None:
        fields["min_insync_replicas"] = broker.min_insync_replicas
    return dump(fields if broker.rack is None else {**fields, "rack": broker.rack})


def decode_broker(data: bytes) -> BrokerRegistration:
    """Returns the registration in `/brokers/ids/[id]`; raises ZooKeeperError for other data.

    Before version 2 it has one endpoint, in PLAINTEXT.
    """
    return decoded(data, "broker registration", _registration)


def encode_topic(topic: TopicAssignment) -> bytes:
    """Returns the data of the node `/brokers/topics/[topic]`."""
    return dump(
        {
            "partitions": _by_text(dict(enumerate(topic.replicas))),
            "topic_id": encode_id(topic.topic_id),
            "adding_replicas": _by_text(topic.adding_replicas),
            "removing_replicas": _by_text(topic.removing_replicas),
            "version": 3,
        }
    )


def decode_topic(data: bytes) -> TopicAssignment:
    """Returns the assignment in `/brokers/topics/[topic]`; raises ZooKeeperError for other data.

    Versions 1 and 2 have no topic id.
    """
    return decoded(data, "topic assignment", _topic)


def encode_partition_state(state: PartitionState) -> bytes:
    """Returns the data of the node `/brokers/topics/[topic]/partitions/[n]/state`."""
    recovery = (
        {} if state.leader_recovery_state == RECOVERED else {"leader_recovery_state": state.leader_recovery_state}
    )
    return dump(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            **recovery,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def decode_partition_state(data: bytes) -> PartitionState:
    """Returns the state in `/brokers/topics/[topic]/partitions/[n]/state`; raises ZooKeeperError for other data."""
    return decoded(
        data,
        "partition state",
        lambda fields: PartitionState(
            leader=int(fields["leader"]),
            leader_epoch=leader_epoch(fields["leader_epoch"]),
            isr=tuple(int(replica) for replica in fields["isr"]),
            controller_epoch=int(fields["controller_epoch"]),
            leader_recovery_state=int(fields.get("leader_recovery_state", RECOVERED)),
        ),
    )


def encode_config(config: Mapping[str, str]) -> bytes:
    """Returns properties as the data of the node `/config/topics/[topic]` or `/config/brokers/[id]`."""
    return dump({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """Returns the properties in `/config/topics/[topic]` or `/config/brokers/[id]`; raises ZooKeeperError."""
    return decoded(data, "topic config", lambda fields: {str(k): str(v) for k, v in fields["config"].items()})


def encode_config_change(entity_path: str) -> bytes:
    """Returns the data of `/config/changes/[change]`, which names what was changed, such as `topics/[topic]`."""
    return dump({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """Returns whose configuration a `/config/changes/[change]` says was changed, such as `topics/[topic]`.

    In version 1 the data has two fields for it. Raises ZooKeeperError for other data.
    """
    return decoded(data, "configuration change", _entity_path)


def _entity_path(fields: Mapping[str, Any]) -> str:
    return str(fields["entity_path"]) if fields["version"] == 2 else f"{fields['entity_type']}/{fields['entity_name']}"


def _registration(fields: Mapping[str, Any]) -> BrokerRegistration:
    protocols = fields.get("listener_security_protocol_map", {})
    endpoints = tuple(_endpoint(str(one), protocols) for one in fields.get("endpoints", ()))
    return BrokerRegistration(
        endpoints=endpoints or (plaintext_endpoint(str(fields["host"]), whole(fields["port"])),),
        rack=fields.get("rack"),
        timestamp_ms=int(fields.get("timestamp", -1)),
        registers_again=fields.get("registers_again") is True,
        min_insync_replicas=_whole_or_none(fields.get("min_insync_replicas")),
    )


def _whole_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    """Returns the endpoint in `LISTENER://HOST:PORT`; `protocols` has the security protocol by listener name."""
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(listener, str(protocols.get(listener, listener)), host.strip("[]"), int(port))


def _topic(fields: Mapping[str, Any]) -> TopicAssignment:
    partitions = _by_index(fields["partitions"])
    if set(partitions) != set(range(len(partitions))) or not all(partitions.values()):
        raise ValueError("partitions are not numbered from 0 without a gap, or have no replicas")
    topic_id = decode_id(fields["topic_id"]) if fields.get("topic_id") else NO_TOPIC_ID
    return TopicAssignment(
        topic_id=topic_id,
        replicas=tuple(partitions[index] for index in range(len(partitions))),
        adding_replicas=_by_index(fields.get("adding_replicas", {})),
        removing_replicas=_by_index(fields.get("removing_replicas", {})),
    )


def _by_text(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(index): list(brokers) for index, brokers in replicas.items()}


def _by_index(replicas: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    return {int(index): tuple(int(one) for one in brokers) for index, brokers in replicas.items()}


def dump(fields: Mapping[str, object]) -> bytes:
    """Returns a document as JSON in bytes, without spaces, its fields in the given order."""
    return json.dumps(fields, separators=(",", ":")).encode()


def decoded(data: bytes, what: str, build: Callable[[Any], T]) -> T:
    """Returns what `build` makes of the JSON in `data`; raises ZooKeeperError, "not a `what`", where it can't."""
    try:
        return build(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ZooKeeperError(f"not a {what}: {data[:200]!r}: {error}") from error


ACLS_VERSION = 1


def readable(
    decode: Callable[[bytes], T], data: bytes, logger: logging.Logger, sentence: str, *names: object
) -> T | None:
    """Returns what `decode` makes of a node's data; None, and logs a sentence with `names`, if it can't be read."""
    try:
        return decode(data)
    except ZooKeeperError:
        logger.exception(sentence, *names)
        return None


def encode_acls(acls: Iterable[Acl]) -> bytes:
    """Returns a resource's access control entries as the data of its node, such as `/kafka-acl/Topic/[name]`."""
    return dump({"version": ACLS_VERSION, "acls": acl_fields(acls)})


def decode_acls(data: bytes) -> frozenset[Acl]:
    """Returns the access control entries in a resource's node, such as `/kafka-acl/Topic/[name]`.

    Raises ZooKeeperError for other data.
    """
    return decoded(data, "list of access control", _acls)


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """Returns the data of the node that tells brokers of a change of a resource's access control entries."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return dump(
        {
            "version": ACLS_VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def acl_fields(acls: Iterable[Acl]) -> list[dict[str, str]]:
    """Returns access control entries as the objects that ZooKeeper's JSON has, in a fixed order."""
    return [
        {
            "principal": one.principal,
            "permissionType": one.permission.pascal,
            "operation": one.operation.pascal,
            "host": one.host,
        }
        for one in sorted(acls)
    ]


def acls_of(fields: Iterable[Mapping[str, str]]) -> frozenset[Acl]:
    """Returns the access control entries in JSON by `acl_fields`; raises ValueError or KeyError for other JSON."""
    return frozenset(
        Acl(
            _principal(one["principal"]),
            one["host"],
            AclOperation.parse(one["operation"]),
            PermissionType.parse(one["permissionType"]),
        )
        for one in fields
    )


def _acls(fields: Mapping[str, Any]) -> frozenset[Acl]:
    if fields["version"] != ACLS_VERSION:
        raise ValueError(f"version {fields['version']} is not known")
    return acls_of(fields["acls"])


def _principal(text: str) -> str:
    kind, _, name = text.partition(":")
    if not kind or not name:
        raise ValueError(f"{text!r} is no principal such as User:alice")
    return text


NO_KRAFT_CONTROLLER = -1
LOG_DIR_FAILURE = 1

Partition: TypeAlias = tuple[str, int]  # a topic and the index of the partition


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Returns the data of `/controller`: the broker that is the controller, and since when (ms since the epoch)."""
    return dump(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": NO_KRAFT_CONTROLLER,
        }
    )


def decode_controller(data: bytes) -> int:
    """Returns the controller's broker id in the data of `/controller`."""
    return decoded(data, "controller", lambda fields: whole(fields["brokerid"]))


def encode_controller_epoch(epoch: int) -> bytes:
    """Returns the data of the node `/controller_epoch`."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    """Returns the controller epoch in the data of `/controller_epoch`."""
    return decoded(data, "controller epoch", whole)


def decode_partitions(data: bytes) -> list[Partition]:
    """Returns the partitions that a node names: one of changed ISRs, or `/admin/preferred_replica_election`."""
    return decoded(data, "list of partitions", lambda fields: [_partition(one) for one in fields["partitions"]])


def encode_log_dir_failure(broker_id: int) -> bytes:
    """Returns the data of the node by which a broker tells the controller that it has lost a data directory."""
    return dump({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes) -> int:
    """Returns the id of the broker that has lost a data directory, from a node of `encode_log_dir_failure`."""
    return decoded(data, "event of a data directory", lambda fields: whole(fields["broker"]))


def decode_reassignment(data: bytes) -> dict[Partition, tuple[int, ...]]:
    """Returns each partition's new replicas from the data of `/admin/reassign_partitions`."""
    return decoded(
        data,
        "reassignment",
        lambda fields: {_partition(one): tuple(map(whole, one["replicas"])) for one in fields["partitions"]},
    )


def decode_supported_features(data: bytes) -> dict[str, int]:
    """Returns the newest level of each feature that a broker supports, from the data of `/brokers/ids/[id]`."""
    return decoded(data, "broker registration", _supported_features)


def _supported_features(fields: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): whole(levels["max_version"]) for name, levels in fields.get("features", {}).items()}


def _partition(fields: Mapping[str, Any]) -> Partition:
    return str(fields["topic"]), whole(fields["partition"])
