"""The messages between a controller and the brokers of a cluster with ZooKeeper, which `kio` has no schema for.

A controller sends LeaderAndIsr, StopReplica and UpdateMetadata, a broker that stops sends ControlledShutdown, and a
leader AlterPartition, of which `kio` lacks the first two versions. These are the versions of Apache Kafka 3.9, the last
one with ZooKeeper. Where the versions differ in more than a field:

LeaderAndIsr     partitions by topic from v2 on (KIP-380), errors by topic id from v5 on (KIP-516)
StopReplica      partitions by topic from v1 on, and from v3 on each with its leader epoch (KIP-570)
UpdateMetadata   several endpoints of a broker from v1 on, partitions by topic from v5 on
AlterPartition   topics by id from v2 on, the ISR with the epochs of brokers from v3 on (KIP-903)

A declaration covers all versions of a message. Names and kinds are those of `wire.schema.SchemaField`.

    BROKER = Structure("UpdateMetadataBroker", (Field("id", "int32"), Field("rack", "string", 2, is_nullable=True)))
    REQUEST = Structure("UpdateMetadataRequest", (Field("live_brokers", BROKER, is_array=True),))
    fields = fields_of(REQUEST, 7)                         the fields that version 7 has
    made_type(REQUEST.name, fields, is_flexible=True)      a dataclass in the form of kio's, for its codecs
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from millrace.leader_states import RECOVERED
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.schema import SchemaField

NEWEST = 1 << 15
PYTHON_TYPES: dict[str, type] = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64", "error_code"), int),
    **dict.fromkeys(("timedelta_i32", "timedelta_i64"), timedelta),
    **dict.fromkeys(("bytes", "records"), bytes),
    "bool": bool,
    "datetime_i64": datetime,
    "string": str,
    "uuid": UUID,
}


class Structure(NamedTuple):
    """A message, or a structure in a message, with the fields of all versions in the order of their bytes."""

    name: str
    fields: tuple[Field, ...]


class Field(NamedTuple):
    """A field of the versions `first` to `last`; one with a tag is written only if it differs from its default."""

    name: str
    kind: str | Structure
    first: int = 0
    last: int = NEWEST
    is_array: bool = False
    is_nullable: bool = False
    tag: int | None = None
    default: object = MISSING  # MISSING where the protocol has none


class DeclaredApi(NamedTuple):
    """The versions of an API, and the structures of its request and its response."""

    versions: VersionRange
    request: Structure
    response: Structure


def fields_of(structure: Structure, version: int) -> tuple[SchemaField, ...]:
    """Returns the fields that a structure has in one version, in the order of their bytes."""
    return tuple(_schema_field(one, version) for one in structure.fields if one.first <= version <= one.last)


def _schema_field(one: Field, version: int) -> SchemaField:
    is_nullable = one.is_nullable or one.kind == "uuid"  # kio reads an id of zeros as None
    if isinstance(one.kind, Structure):
        kind, fields, struct = "struct", fields_of(one.kind, version), one.kind.name
    else:
        kind, fields, struct = one.kind, (), ""
    return SchemaField(one.name, kind, one.is_array, is_nullable, one.tag, fields, struct, one.default)


def made_type(name: str, fields: Sequence[SchemaField], *, is_flexible: bool) -> Any:
    """Returns a new frozen dataclass for a message, annotated as the library kio needs to read and write it."""
    made = [(one.name, _annotation(one, is_flexible=is_flexible), _dataclass_field(one)) for one in fields]
    namespace = {"__flexible__": is_flexible}
    return dataclasses.make_dataclass(name, made, namespace=namespace, frozen=True, slots=True, kw_only=True)


def _annotation(one: SchemaField, *, is_flexible: bool) -> Any:
    is_struct = one.kind == "struct"
    inner = made_type(one.struct, one.fields, is_flexible=is_flexible) if is_struct else PYTHON_TYPES[one.kind]
    whole: Any = tuple[inner, ...] if one.is_array else inner  # type: ignore[valid-type]
    return whole | None if one.is_nullable else whole


def _dataclass_field(one: SchemaField) -> Any:
    metadata: dict[str, object] = {} if one.kind == "struct" else {"kafka_type": one.kind}
    if one.tag is not None:
        metadata["tag"] = one.tag
    return dataclasses.field(default=one.default, metadata=metadata)


NO_BROKER_EPOCH = -1  # the sender knows none, or the version of the message has none
EPOCH_DURING_DELETE = -2  # the leader epoch in StopReplica while the partition's topic is being deleted

CONTROLLER_ID = Field("controller_id", "int32")
CONTROLLER_EPOCH = Field("controller_epoch", "int32")
ERROR_CODE = Field("error_code", "error_code")
TOPIC_NAME = Field("topic_name", "string")
PARTITION_INDEX = Field("partition_index", "int32")
LEADER = (CONTROLLER_EPOCH, Field("leader", "int32"), Field("leader_epoch", "int32"))
ISR = Field("isr", "int32", is_array=True)
REPLICAS = Field("replicas", "int32", is_array=True)


def _is_kraft_controller(first: int) -> Field:
    return Field("is_kraft_controller", "bool", first, default=False)


def _broker_epoch(first: int) -> Field:
    return Field("broker_epoch", "int64", first, default=NO_BROKER_EPOCH)


LEADER_AND_ISR_PARTITION = Structure(
    "LeaderAndIsrPartitionState",
    (
        Field("topic_name", "string", last=1),
        PARTITION_INDEX,
        *LEADER,
        ISR,
        Field("partition_epoch", "int32"),
        REPLICAS,
        Field("adding_replicas", "int32", 3, is_array=True),
        Field("removing_replicas", "int32", 3, is_array=True),
        Field("is_new", "bool", 1, default=False),
        Field("leader_recovery_state", "int8", 6, default=RECOVERED),
    ),
)
LEADER_AND_ISR_TOPIC = Structure(
    "LeaderAndIsrTopicState",
    (
        TOPIC_NAME,
        Field("topic_id", "uuid", 5),
        Field("partition_states", LEADER_AND_ISR_PARTITION, is_array=True),
    ),
)
LEADER_AND_ISR_LIVE_LEADER = Structure(
    "LeaderAndIsrLiveLeader", (Field("broker_id", "int32"), Field("host_name", "string"), Field("port", "int32"))
)
LEADER_AND_ISR_REQUEST = Structure(
    "LeaderAndIsrRequest",
    (
        CONTROLLER_ID,
        _is_kraft_controller(7),
        CONTROLLER_EPOCH,
        _broker_epoch(2),
        Field("type", "int8", 5),
        Field("ungrouped_partition_states", LEADER_AND_ISR_PARTITION, last=1, is_array=True),
        Field("topic_states", LEADER_AND_ISR_TOPIC, 2, is_array=True),
        Field("live_leaders", LEADER_AND_ISR_LIVE_LEADER, is_array=True),
    ),
)
LEADER_AND_ISR_ERROR = Structure(
    "LeaderAndIsrPartitionError", (Field("topic_name", "string", last=4), PARTITION_INDEX, ERROR_CODE)
)
LEADER_AND_ISR_TOPIC_ERROR = Structure(
    "LeaderAndIsrTopicError",
    (Field("topic_id", "uuid"), Field("partition_errors", LEADER_AND_ISR_ERROR, is_array=True)),
)
LEADER_AND_ISR_RESPONSE = Structure(
    "LeaderAndIsrResponse",
    (
        ERROR_CODE,
        Field("partition_errors", LEADER_AND_ISR_ERROR, last=4, is_array=True),
        Field("topics", LEADER_AND_ISR_TOPIC_ERROR, 5, is_array=True),
    ),
)

STOP_REPLICA_PARTITION_V0 = Structure("StopReplicaPartitionV0", (TOPIC_NAME, PARTITION_INDEX))
STOP_REPLICA_TOPIC_V1 = Structure(
    "StopReplicaTopicV1", (Field("name", "string"), Field("partition_indexes", "int32", is_array=True))
)
STOP_REPLICA_PARTITION = Structure(
    "StopReplicaPartitionState",
    (PARTITION_INDEX, Field("leader_epoch", "int32", default=NO_LEADER_EPOCH), Field("delete_partition", "bool")),
)
STOP_REPLICA_TOPIC = Structure(
    "StopReplicaTopicState", (TOPIC_NAME, Field("partition_states", STOP_REPLICA_PARTITION, is_array=True))
)
STOP_REPLICA_REQUEST = Structure(
    "StopReplicaRequest",
    (
        CONTROLLER_ID,
        _is_kraft_controller(4),
        CONTROLLER_EPOCH,
        _broker_epoch(1),
        Field("delete_partitions", "bool", last=2),
        Field("ungrouped_partitions", STOP_REPLICA_PARTITION_V0, last=0, is_array=True),
        Field("topics", STOP_REPLICA_TOPIC_V1, 1, 2, is_array=True),
        Field("topic_states", STOP_REPLICA_TOPIC, 3, is_array=True),
    ),
)
STOP_REPLICA_ERROR = Structure("StopReplicaPartitionError", (TOPIC_NAME, PARTITION_INDEX, ERROR_CODE))
STOP_REPLICA_RESPONSE = Structure(
    "StopReplicaResponse", (ERROR_CODE, Field("partition_errors", STOP_REPLICA_ERROR, is_array=True))
)

UPDATE_METADATA_PARTITION = Structure(
    "UpdateMetadataPartitionState",
    (
        Field("topic_name", "string", last=4),
        PARTITION_INDEX,
        *LEADER,
        ISR,
        Field("zk_version", "int32"),
        REPLICAS,
        Field("offline_replicas", "int32", 4, is_array=True),
    ),
)
UPDATE_METADATA_TOPIC = Structure(
    "UpdateMetadataTopicState",
    (
        TOPIC_NAME,
        Field("topic_id", "uuid", 7),
        Field("partition_states", UPDATE_METADATA_PARTITION, is_array=True),
    ),
)
UPDATE_METADATA_ENDPOINT = Structure(
    "UpdateMetadataEndpoint",
    (
        Field("port", "int32"),
        Field("host", "string"),
        Field("listener", "string", 3),
        Field("security_protocol", "int16"),
    ),
)
UPDATE_METADATA_BROKER = Structure(
    "UpdateMetadataBroker",
    (
        Field("id", "int32"),
        Field("v0_host", "string", last=0),
        Field("v0_port", "int32", last=0),
        Field("endpoints", UPDATE_METADATA_ENDPOINT, 1, is_array=True),
        Field("rack", "string", 2, is_nullable=True),
    ),
)
UPDATE_METADATA_REQUEST = Structure(
    "UpdateMetadataRequest",
    (
        CONTROLLER_ID,
        _is_kraft_controller(8),
        Field("type", "int8", 8, tag=0, default=0),
        CONTROLLER_EPOCH,
        _broker_epoch(5),
        Field("ungrouped_partition_states", UPDATE_METADATA_PARTITION, last=4, is_array=True),
        Field("topic_states", UPDATE_METADATA_TOPIC, 5, is_array=True),
        Field("live_brokers", UPDATE_METADATA_BROKER, is_array=True),
    ),
)
UPDATE_METADATA_RESPONSE = Structure("UpdateMetadataResponse", (ERROR_CODE,))

CONTROLLED_SHUTDOWN_REQUEST = Structure("ControlledShutdownRequest", (Field("broker_id", "int32"), _broker_epoch(2)))
REMAINING_PARTITION = Structure("RemainingPartition", (TOPIC_NAME, PARTITION_INDEX))
CONTROLLED_SHUTDOWN_RESPONSE = Structure(
    "ControlledShutdownResponse", (ERROR_CODE, Field("remaining_partitions", REMAINING_PARTITION, is_array=True))
)

ALTER_PARTITION_BROKER = Structure(
    "BrokerState", (Field("broker_id", "int32"), Field("broker_epoch", "int64", default=NO_BROKER_EPOCH))
)
ALTER_PARTITION_TOPIC = (Field("topic_name", "string", last=1), Field("topic_id", "uuid", 2))
LEADER_RECOVERY_STATE = Field("leader_recovery_state", "int8", 1, default=RECOVERED)
PROPOSED_PARTITION = Structure(
    "ProposedPartition",
    (
        PARTITION_INDEX,
        Field("leader_epoch", "int32"),
        Field("new_isr", "int32", last=2, is_array=True),
        Field("new_isr_with_epochs", ALTER_PARTITION_BROKER, 3, is_array=True),
        LEADER_RECOVERY_STATE,
        Field("partition_epoch", "int32"),
    ),
)
PROPOSED_TOPIC = Structure(
    "ProposedTopic", (*ALTER_PARTITION_TOPIC, Field("partitions", PROPOSED_PARTITION, is_array=True))
)
ALTER_PARTITION_REQUEST = Structure(
    "AlterPartitionRequest",
    (
        Field("broker_id", "int32"),
        Field("broker_epoch", "int64", default=NO_BROKER_EPOCH),
        Field("topics", PROPOSED_TOPIC, is_array=True),
    ),
)
ALTERED_PARTITION = Structure(
    "AlteredPartition",
    (
        PARTITION_INDEX,
        ERROR_CODE,
        Field("leader_id", "int32"),
        Field("leader_epoch", "int32"),
        ISR,
        LEADER_RECOVERY_STATE,
        Field("partition_epoch", "int32"),
    ),
)
ALTERED_TOPIC = Structure(
    "AlteredTopic", (*ALTER_PARTITION_TOPIC, Field("partitions", ALTERED_PARTITION, is_array=True))
)
ALTER_PARTITION_RESPONSE = Structure(
    "AlterPartitionResponse",
    (Field("throttle_time_ms", "int32"), ERROR_CODE, Field("topics", ALTERED_TOPIC, is_array=True)),
)

CONTROLLER_APIS: Mapping[int, DeclaredApi] = {
    ApiKey.LEADER_AND_ISR: DeclaredApi(VersionRange(0, 7), LEADER_AND_ISR_REQUEST, LEADER_AND_ISR_RESPONSE),
    ApiKey.STOP_REPLICA: DeclaredApi(VersionRange(0, 4), STOP_REPLICA_REQUEST, STOP_REPLICA_RESPONSE),
    ApiKey.UPDATE_METADATA: DeclaredApi(VersionRange(0, 8), UPDATE_METADATA_REQUEST, UPDATE_METADATA_RESPONSE),
    ApiKey.CONTROLLED_SHUTDOWN: DeclaredApi(
        VersionRange(0, 3), CONTROLLED_SHUTDOWN_REQUEST, CONTROLLED_SHUTDOWN_RESPONSE
    ),
    ApiKey.ALTER_PARTITION: DeclaredApi(VersionRange(0, 3), ALTER_PARTITION_REQUEST, ALTER_PARTITION_RESPONSE),
}
