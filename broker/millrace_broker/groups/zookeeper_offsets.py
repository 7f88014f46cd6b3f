"""Offsets in ZooKeeper, where clients of Kafka 0.8.1 kept them: `/consumers/[group]/offsets/[topic]/[partition]`.

OffsetCommit and OffsetFetch of version 0 mean these. A node's data is the offset in decimal; metadata is not stored.
"""

from __future__ import annotations

from millrace.errors import ZooKeeperError
from millrace.zk import paths
from millrace.zk.session import ZooKeeperSession


class ZooKeeperOffsets:
    """The offsets in ZooKeeper. Its methods block, so a worker thread calls them, and may raise ZooKeeperError."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def commit(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Replaces a group's offset of a partition in ZooKeeper."""
        self._session.put(paths.consumer_offset(group_id, topic, partition), str(offset).encode())

    def fetch(self, group_id: str, topic: str, partition: int) -> int | None:
        """Returns the offset, or None."""
        path = paths.consumer_offset(group_id, topic, partition)
        data = self._session.get(path)
        if not data:
            return None
        try:
            return int(data)
        except ValueError:
            raise ZooKeeperError(f"{path} has {data[:40]!r}, which is no offset") from None
