"""Asks ZooKeeper whose cluster it holds and which brokers are registered. It makes no node there."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from millrace.client.consumer.group_offsets import open_session
from millrace.errors import ZooKeeperError
from millrace.zk import paths
from millrace.zk.codec import decode_cluster_id
from millrace.zk.security import ZooKeeperSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperFacts:
    """What ZooKeeper answered; `trouble` is why it did not. Without a `cluster_id` no broker has started there yet."""

    address: str
    trouble: str | None = None
    cluster_id: str | None = None
    broker_ids: frozenset[int] = frozenset()


def read_zookeeper(address: str, security: ZooKeeperSecurity) -> ZooKeeperFacts:
    """Returns what the ZooKeeper at an address holds; it waits ten seconds for one that does not answer."""
    servers, slash, chroot = address.partition("/")
    prefix = (slash + chroot).rstrip("/")  # a session with a chroot would make it
    try:
        with closing(open_session(servers, security=security)) as session:
            cluster = session.get(prefix + paths.CLUSTER_ID)
            return ZooKeeperFacts(
                address=address,
                cluster_id=None if cluster is None else decode_cluster_id(cluster),
                broker_ids=frozenset(map(int, session.children(prefix + paths.BROKER_IDS))),
            )
    except ZooKeeperError as error:
        return ZooKeeperFacts(address=address, trouble=str(error))
