"""What the records of offsets and classic groups, whose key versions are 0 to 2, mean when they are read back."""

from __future__ import annotations

from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.records import (
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSIONS,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from millrace_broker.groups.shard import Replay, Shard


def replay_offset(shard: Shard, key: bytes, value: bytes | None) -> None:
    """Replays a commit or its tombstone. A group that only keeps offsets has no other record."""
    offset_key = read_offset_key(key)
    if value is None:
        shard.offsets.remove(offset_key)
        return
    shard.offsets.put(offset_key, read_offset_value(value))
    simple_group(shard, offset_key.group_id)


def replay_group(shard: Shard, key: bytes, value: bytes | None) -> None:
    """Replays a classic group or its tombstone, after which the group only keeps offsets, if it has any."""
    group_id = read_group_key(key)
    if value is None:
        shard.groups.pop(group_id, None)
        if shard.offsets.of_group(group_id):
            simple_group(shard, group_id)
        return
    shard.groups[group_id] = ClassicGroup.of(group_id, read_group_value(value), shard.config, shard.now_ms())


def simple_group(shard: Shard, group_id: str) -> None:
    """Makes a group that only keeps offsets, unless there is a group."""
    if group_id not in shard.groups:
        shard.groups[group_id] = ClassicGroup(group_id, shard.config, shard.now_ms())


REPLAYERS: dict[int, Replay] = {
    **dict.fromkeys(OFFSET_KEY_VERSIONS, replay_offset),
    GROUP_KEY_VERSION: replay_group,
}
