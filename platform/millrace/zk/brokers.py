"""The live brokers of a cluster, as they have registered themselves below `/brokers/ids`."""

from __future__ import annotations

from millrace.addresses import PLAINTEXT, Address
from millrace.errors import ZooKeeperError
from millrace.zk import paths
from millrace.zk.codec import decode_broker
from millrace.zk.session import ZooKeeperSession


def read_brokers(
    session: ZooKeeperSession, *, watch: bool = False, security_protocol: str = PLAINTEXT
) -> tuple[Address, ...]:
    """Returns the addresses of the live brokers for a security protocol, in the order of their ids as text.

    With `watch` the session's `on_change` is called when a broker comes or goes. A broker without such a listener is
    left out; raises ZooKeeperError where no broker has one, and for a registration that can't be read.
    """
    ids = sorted(session.children(paths.BROKER_IDS, watch=watch))
    nodes = session.get_many([f"{paths.BROKER_IDS}/{one}" for one in ids])
    brokers = [decode_broker(node) for node in nodes if node is not None]
    found = [one.endpoint_of(security_protocol) for one in brokers]
    if brokers and not any(found):
        others = sorted({endpoint.security_protocol for one in brokers for endpoint in one.endpoints})
        raise ZooKeeperError(f"no broker has a listener of {security_protocol}; they have {', '.join(others)}")
    return tuple(one.address for one in found if one is not None)
