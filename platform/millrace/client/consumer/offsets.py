"""The offsets of a group: in ZooKeeper, in the coordinator, or, during a migration, in both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from millrace.client.consumer.assignment import Partition
from millrace.client.groups import GroupOffset, Groups
from millrace.config import MAX_LONG
from millrace.errors import DamagedNodeError, InvalidConfigError
from millrace.records.batch import NO_OFFSET
from millrace.zk import paths
from millrace.zk.session import ZooKeeperSession


def read_zookeeper(session: ZooKeeperSession, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Returns the offsets that ZooKeeper has of these partitions.

    Raises DamagedNodeError for a bad one, ZooKeeperError.
    """
    return {one: _number(one, data) for one, data in _nodes(session, group_id, partitions).items()}


def read_sound_zookeeper(
    session: ZooKeeperSession, group_id: str, partitions: Iterable[Partition]
) -> dict[Partition, int]:
    """Returns what `read_zookeeper` does, for those who replace offsets: damaged ones are left out."""
    found: dict[Partition, int] = {}
    for one, data in _nodes(session, group_id, partitions).items():
        with suppress(DamagedNodeError):
            found[one] = _number(one, data)
    return found


def read_all_zookeeper(session: ZooKeeperSession, group_id: str) -> dict[Partition, int]:
    """Returns all the offsets that ZooKeeper has of a group."""
    partitions = [
        Partition(topic, int(index))
        for topic in session.children(paths.consumer_offsets(group_id))
        for index in session.children(paths.consumer_offsets(group_id, topic))
        if index.isdecimal()
    ]
    return read_zookeeper(session, group_id, sorted(partitions))


def check_names(*names: str) -> None:
    """Raises InvalidConfigError for a group or a topic whose name no node of ZooKeeper can have."""
    for name in names:
        if not paths.is_name(name):
            raise InvalidConfigError(f"{name!r} can't be a name in ZooKeeper")


def write_zookeeper(session: ZooKeeperSession, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """Sets offsets of a group without live members; none where a topic's name has no place in ZooKeeper."""
    check_names(*{partition.topic for partition in offsets})
    for partition, offset in offsets.items():
        session.put(paths.consumer_offset(group_id, *partition), str(offset).encode())


def read_coordinator(
    groups: Groups, group_id: str, partitions: Iterable[Partition] | None = None
) -> dict[Partition, int]:
    """Returns the offsets that the coordinator has: all, or those of some partitions with no commit under way."""
    found = groups.offsets(group_id, partitions).items()
    return {Partition(*partition): offset for partition, (offset, _) in found if offset != NO_OFFSET}


def write_coordinator(groups: Groups, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """Commits offsets to the group's coordinator, which takes them from anyone while it knows no members."""
    groups.commit(group_id, {partition: GroupOffset(offset, "") for partition, offset in offsets.items()})


def furthest(*stores: Mapping[Partition, int]) -> dict[Partition, int]:
    """Returns the larger of two stores' offsets: what a member begins with while it commits to both."""
    offsets: dict[Partition, int] = {}
    for store in stores:
        for partition, offset in store.items():
            offsets[partition] = max(offset, offsets.get(partition, NO_OFFSET))
    return offsets


def _nodes(session: ZooKeeperSession, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, bytes]:
    wanted = list(partitions)
    found = session.get_many([paths.consumer_offset(group_id, *one) for one in wanted])
    return {one: data for one, data in zip(wanted, found, strict=True) if data is not None}


def _number(partition: Partition, data: bytes) -> int:
    try:
        offset = int(data)
    except ValueError:
        raise DamagedNodeError(f"the offset of {partition} is {data[:100]!r}, not a number") from None
    if offset > MAX_LONG:
        raise DamagedNodeError(f"the offset of {partition} is {offset}, which no log has")
    return offset
