"""Offsets in ZooKeeper, where clients of Kafka 0.8.1 kept them: `/consumers/[group]/offsets/[topic]/[partition]`.

OffsetCommit and OffsetFetch version 0 mean these. A node's data is the offset in decimal; metadata is not kept.
"""

from __future__ import annotations

from millrace.errors import ZooKeeperError
from millrace.zk import paths
from millrace.zk.session import ZooKeeperSession


class ZooKeeperOffsets:
    """Blocks: call it from a worker thread. Every call may raise ZooKeeperError."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def commit(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Replace the offset."""
        self._session.put(paths.consumer_offset(group_id, topic, partition), str(offset).encode())

    def fetch(self, group_id: str, topic: str, partition: int) -> int | None:
        """The offset; None where none is kept."""
        path = paths.consumer_offset(group_id, topic, partition)
        data = self._session.get(path)
        if not data:
            return None
        try:
            return int(data)
        except ValueError:
            raise ZooKeeperError(f"{path} holds {data[:40]!r}, which is no offset") from None
