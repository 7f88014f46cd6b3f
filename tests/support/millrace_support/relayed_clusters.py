"""Several real brokers that reach each other, and ZooKeeper, through relays: their networks can be cut.

Clients reach a broker through its relay, too, and no cut holds for them.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from millrace.addresses import LOOPBACK, Address, parse_address
from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace_support.await_brokers import await_brokers
from millrace_support.broker_clusters import QUICK, SESSION_TIMEOUT_MS, BrokerCluster, end
from millrace_support.relays import Relay, Relays
from millrace_support.waiting import awaited

SESSION_S = SESSION_TIMEOUT_MS / 1000
PATIENCE_S = 60
CONNECT_RESPONSE = struct.Struct(">iiiqi16s")  # ZooKeeper's: size, protocol, timeout, session id, bytes, password


class RelayedCluster(BrokerCluster[BrokerProcess]):
    """A cluster whose networks can be cut.

    Args:
        brokers: By their ids.
        relays: What stands before each broker.
        zookeeper_relays: What stands before ZooKeeper, for each broker.
        zookeeper: The address of ZooKeeper itself, with the chroot, which clients use; no cut holds for them.
    """

    def __init__(
        self,
        brokers: Mapping[int, BrokerProcess],
        relays: Mapping[int, Relay],
        zookeeper_relays: Mapping[int, Relay],
        zookeeper: str,
    ) -> None:
        super().__init__(brokers)
        self._relays, self._zookeeper_relays, self.zookeeper = relays, zookeeper_relays, zookeeper

    @property
    def bootstrap(self) -> str:
        """The addresses at which clients reach the brokers."""
        return ",".join(str(each.address) for each in self._relays.values())

    def read_log(self) -> str:
        """Returns what the brokers have written to stderr, one after the other."""
        return "\n".join(f"broker {each}:\n{broker.read_log()}" for each, broker in self.brokers.items())

    def cut_between(self, broker: int, others: Iterable[int]) -> None:
        """Cuts the network between a broker and others, in both directions."""
        for other in others:
            self.cut_from(broker, other)
            self.cut_from(other, broker)

    def cut_from(self, source: int, target: int) -> None:
        """Holds back the connections that one broker opens to another; the other one still reaches it."""
        self._relays[target].cut([source])

    def cut_from_zookeeper(self, broker: int) -> None:
        """Cuts the network between a broker and ZooKeeper."""
        self._zookeeper_relays[broker].cut()

    def heal(self, *, breaks: bool = False) -> None:
        """Heals all networks; `breaks` ends the connections whose bytes were held back."""
        for relay in (*self._relays.values(), *self._zookeeper_relays.values()):
            relay.heal(breaks=breaks)

    def expire_session(self, broker: int) -> None:
        """Ends a broker's session with ZooKeeper: a second connection with its id and password closes it."""
        with self._zookeeper_client() as client:
            session_id = awaited(lambda: self._session_of(client, broker), f"broker {broker} is registered")
        answers = map(CONNECT_RESPONSE.unpack_from, self._zookeeper_relays[broker].first_answers())
        password = next(password for *_, known_id, _, password in answers if known_id == session_id)
        self.cut_from_zookeeper(broker)  # or its client takes the session back
        with contextlib.suppress(KazooTimeoutError), self._zookeeper_client((session_id, password)):
            pass  # a session that has ended meanwhile gives no connection
        self._zookeeper_relays[broker].heal()

    @contextlib.contextmanager
    def _zookeeper_client(self, client_id: tuple[int, bytes] | None = None) -> Iterator[KazooClient]:
        timeout_s = PATIENCE_S if client_id is None else SESSION_S
        client = KazooClient(hosts=self.zookeeper, timeout=timeout_s, client_id=client_id)
        client.start(timeout=PATIENCE_S)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def _session_of(self, client: KazooClient, broker: int) -> int | None:
        stat = client.exists(f"/brokers/ids/{broker}")
        return None if stat is None else int(stat.ephemeralOwner)


@contextlib.contextmanager
def relayed_cluster(
    folder: Path,
    zookeeper: str,
    ids: Sequence[int] = (1, 2, 3),
    properties: Mapping[str, str] | None = None,
    program: Sequence[str] = ("-m", "millrace_broker"),
) -> Iterator[RelayedCluster]:
    """Starts brokers in a chroot of their own, at the same time, and yields once each knows of all others."""
    chroot, address = uuid4().hex, parse_address(zookeeper)

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(ids)) as starting:
        relays = stack.enter_context(Relays())
        before_brokers = {each: relays.open(knows_brokers=True) for each in ids}
        before_zookeeper = {each: relays.open(address) for each in ids}

        def start(broker_id: int) -> BrokerProcess:
            advertised = {"advertised.listeners": f"PLAINTEXT://{before_brokers[broker_id].address}"}
            listens = Address(LOOPBACK, free_port())
            before_brokers[broker_id].target = listens
            return BrokerProcess(
                folder / str(broker_id),
                zookeeper=f"{before_zookeeper[broker_id].address}/{chroot}",
                broker_id=broker_id,
                listen=str(listens),
                properties={**QUICK, **(properties or {}), **advertised},
                program=program,
            )

        brokers = dict(zip(ids, starting.map(start, ids), strict=True))
        for each in brokers.values():
            stack.callback(end, each)
        await_brokers(set(ids), *brokers.values())
        yield RelayedCluster(brokers, before_brokers, before_zookeeper, f"{zookeeper}/{chroot}")
