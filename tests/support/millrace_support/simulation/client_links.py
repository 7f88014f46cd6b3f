"""The connections of a client of simulations, made when they are needed, and again when they have broken."""

from __future__ import annotations

from millrace_broker.replication.broker_link import BrokerLink
from millrace_support.simulation.network import Network

MAX_RESPONSE_BYTES = 1 << 20


class ClientLinks:
    """The connections of the client on a machine, which waits `timeout_s` for each answer."""

    def __init__(self, network: Network, machine: int, timeout_s: float, client_id: str = "") -> None:
        self._network = network
        self._machine = machine
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._links: dict[int, BrokerLink] = {}

    async def to(self, broker: int) -> BrokerLink:
        """Returns an open connection; raises BrokerUnreachableError where the broker takes none."""
        link = self._links.get(broker)
        if link is None or link.is_closed:
            link = self._links[broker] = await BrokerLink.connect(
                self._network.address(self._machine, broker),
                client_id=self._client_id,
                timeout_s=self._timeout_s,
                max_response_bytes=MAX_RESPONSE_BYTES,
            )
        return link

    def close(self) -> None:
        """Closes all connections, as the client ends."""
        for link in self._links.values():
            link.close()
        self._links.clear()
