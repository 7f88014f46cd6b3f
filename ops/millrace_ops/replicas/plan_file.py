"""Plans in the JSON of kafka-reassign-partitions, which `topics reassign --dry-run --json` prints, too.

{"version": 1, "partitions": [{"topic": "weather", "partition": 0, "replicas": [1, 2]}]}
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from millrace.errors import InvalidReplicaAssignmentError

if TYPE_CHECKING:
    from millrace.client.metadata import Partition
    from millrace.json_values import Json

ANY_LOG_DIR = "any"


def parse_plan(text: str, live_brokers: Collection[int]) -> dict[Partition, tuple[int, ...]]:
    """Returns the replicas that a file gives to each partition.

    Raises:
        InvalidReplicaAssignmentError: It is no such file, names a broker that is not alive, or chooses folders.
    """
    try:
        content: Json = json.loads(text)
    except ValueError as error:
        raise InvalidReplicaAssignmentError(f"this is no JSON: {error}") from error
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise InvalidReplicaAssignmentError('a JSON object with the list "partitions" is expected')
    targets: dict[Partition, tuple[int, ...]] = {}
    for entry in entries:
        partition, replicas = _parse_entry(entry)
        if partition in targets:
            raise _wrong(partition, "it is named twice")
        _check_replicas(partition, replicas, live_brokers)
        targets[partition] = replicas
    return targets


def _parse_entry(entry: Json) -> tuple[Partition, tuple[int, ...]]:
    if isinstance(entry, dict):
        topic, index, replicas = (entry.get(name) for name in ("topic", "partition", "replicas"))
        if isinstance(topic, str) and _is_id(index) and isinstance(replicas, list) and all(map(_is_id, replicas)):
            partition = (topic, int(str(index)))
            log_dirs = entry.get("log_dirs") or []
            if not isinstance(log_dirs, list) or any(one != ANY_LOG_DIR for one in log_dirs):
                raise _wrong(partition, f'folders can\'t be chosen here; leave out log_dirs, or write "{ANY_LOG_DIR}"')
            return partition, tuple(int(str(one)) for one in replicas)
    raise InvalidReplicaAssignmentError(
        f'{json.dumps(entry)}: {{"topic": NAME, "partition": NUMBER, "replicas": [ID, …]}} is expected'
    )


def _check_replicas(partition: Partition, replicas: tuple[int, ...], live_brokers: Collection[int]) -> None:
    if not replicas:
        raise _wrong(partition, "it needs a replica")
    if len(set(replicas)) < len(replicas):
        raise _wrong(partition, "a broker is named twice")
    if unknown := sorted(set(replicas) - set(live_brokers)):
        raise _wrong(partition, f"broker {unknown[0]} is not alive")


def _is_id(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _wrong(partition: Partition, reason: str) -> InvalidReplicaAssignmentError:
    return InvalidReplicaAssignmentError(f"{partition[0]}-{partition[1]}: {reason}")
