"""The live brokers of a cluster, as they have registered themselves below `/brokers/ids`."""

from __future__ import annotations

from millrace.addresses import Address
from millrace.zk import paths
from millrace.zk.codec import decode_broker
from millrace.zk.session import ZooKeeperSession


def read_brokers(session: ZooKeeperSession, *, watch: bool = False) -> tuple[Address, ...]:
    """Returns where the live brokers listen, by the order of their ids as text.

    With `watch` the session tells of the next broker that comes or goes. ZooKeeperError for a registration that can't
    be read.
    """
    ids = sorted(session.children(paths.BROKER_IDS, watch=watch))
    nodes = session.get_many([f"{paths.BROKER_IDS}/{one}" for one in ids])
    brokers = (decode_broker(node) for node in nodes if node is not None)
    return tuple(Address(broker.host, broker.port) for broker in brokers)
