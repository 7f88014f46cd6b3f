"""The nodes that a controller and its brokers write to each other, byte for byte as Apache Kafka 3.9 writes them.

    /controller                         {"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}
    /controller_epoch                   7
    /isr_change_notification/[change]   {"version":1,"partitions":[{"topic":"t","partition":0}]}
    /admin/preferred_replica_election   the same
    /log_dir_event_notification/[event] {"version":1,"broker":1,"event":1}
    /admin/reassign_partitions          {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}

Decoders raise ZooKeeperError for other documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, TypeAlias

from millrace.zk.codec import decoded, dump

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
    return decoded(data, "controller", lambda fields: index(fields["brokerid"]))


def encode_controller_epoch(epoch: int) -> bytes:
    """Returns the data of the node `/controller_epoch`."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    """Returns the controller epoch in the data of `/controller_epoch`."""
    return decoded(data, "controller epoch", index)


def decode_partitions(data: bytes) -> list[Partition]:
    """Returns the partitions that a node names: one of changed ISRs, or `/admin/preferred_replica_election`."""
    return decoded(data, "list of partitions", lambda fields: [_partition(one) for one in fields["partitions"]])


def encode_log_dir_failure(broker_id: int) -> bytes:
    """Returns the data of the node by which a broker tells the controller that it has lost a data directory."""
    return dump({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes) -> int:
    """Returns the id of the broker that has lost a data directory, from a node of `encode_log_dir_failure`."""
    return decoded(data, "event of a data directory", lambda fields: index(fields["broker"]))


def decode_reassignment(data: bytes) -> dict[Partition, tuple[int, ...]]:
    """Returns each partition's new replicas from the data of `/admin/reassign_partitions`."""
    return decoded(
        data,
        "reassignment",
        lambda fields: {_partition(one): tuple(map(index, one["replicas"])) for one in fields["partitions"]},
    )


def decode_supported_features(data: bytes) -> dict[str, int]:
    """Returns the newest level of each feature that a broker supports, from the data of `/brokers/ids/[id]`."""
    return decoded(data, "broker registration", _supported_features)


def _supported_features(fields: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): index(levels["max_version"]) for name, levels in fields.get("features", {}).items()}


def _partition(fields: Mapping[str, Any]) -> Partition:
    return str(fields["topic"]), index(fields["partition"])
