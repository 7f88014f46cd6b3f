"""A network in memory: byte streams between machines, with delays, breaks, and cuts that last.

    network = Network(loop, Random(seed))
    network.listen(1, protocol_factory)          machine 1 takes connections
    address = network.address(2, 1)              where machine 2, as long as it does not die, reaches machine 1
    network.cut(1, 2)                            nothing passes in either direction until `heal`

It is the door of its event loop to other machines. An address tells who connects, so that a process that died, and
whose tasks are not all at their end, is never taken for the one that runs on the machine now.

As TCP does, a stream delivers its bytes in order and once, or breaks. While two machines are cut off, bytes wait: they
arrive late if the cut heals before the connection is given up, even from a former leader or controller that has not yet
heard of its successor. `pause` holds all that goes to and from a machine, as a sleeping process does.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from random import Random

from millrace.addresses import Address
from millrace_support.simulation.virtual_time import VirtualTimeLoop

FIRST_PORT = 9000
CONNECT_TIMEOUT_S = 5.0
TICK_S = 1e-6  # between two arrivals, since timers of the same time have no order

Factory = Callable[[], asyncio.BaseProtocol]


class Stream(asyncio.Transport):
    """One end of a connection. `protocol` receives what the other end writes."""

    def __init__(self, network: Network, machine: int, peer: int, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.machine = machine
        self.peer = peer
        self.protocol = protocol
        self.other: Stream
        self._network = network
        self._is_open = True
        self._sent_until_s = 0.0
        self._held: deque[bytes | None] = deque()

    def is_closing(self) -> bool:
        """Returns whether this end is closed."""
        return not self._is_open

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes, which arrive after those that were sent before."""
        if self._is_open:
            self._send(bytes(data))

    def abort(self) -> None:
        """Closes both ends; the other one hears of it as of bytes, and what is on its way is lost."""
        if self._is_open:
            self._is_open = False
            self._network.streams.pop(self, None)
            self._send(None)

    def close(self) -> None:
        """Closes the connection."""
        self.abort()

    def _send(self, data: bytes | None) -> None:
        loop, network = self._network.loop, self._network
        self._sent_until_s = max(self._sent_until_s + TICK_S, loop.time() + network.delay_s())
        loop.call_at(self._sent_until_s, self.other._arrived, data)  # noqa: SLF001  two ends of one thing

    def _arrived(self, data: bytes | None) -> None:
        if self._held or not self._network.passes(self.machine, self.peer):
            self._held.append(data)
        else:
            self._take(data)

    def release(self) -> None:
        """Delivers what was held back, if it passes now."""
        while self._held and self._network.passes(self.machine, self.peer):
            self._take(self._held.popleft())

    def _take(self, data: bytes | None) -> None:
        if not self._is_open:
            return
        if data is None:
            self.break_off()
        elif isinstance(self.protocol, asyncio.BufferedProtocol):
            _fill(self.protocol, data)
        elif isinstance(self.protocol, asyncio.Protocol):
            self.protocol.data_received(data)

    def break_off(self) -> None:
        """Tells this end that the connection is gone."""
        if self._is_open:
            self._is_open = False
            self._network.streams.pop(self, None)
            self.protocol.connection_lost(ConnectionResetError("the connection broke"))


def _fill(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        buffer = memoryview(protocol.get_buffer(len(rest)))
        count = min(len(buffer), len(rest))
        buffer[:count] = rest[:count]
        protocol.buffer_updated(count)
        rest = rest[count:]


class Network:
    """All connections. Bytes travel for at most `slowest_s`."""

    def __init__(self, loop: VirtualTimeLoop, chance: Random, *, slowest_s: float = 0.02) -> None:
        self.loop = loop
        loop.connect = self.connect
        self.streams: dict[Stream, None] = {}
        self.slowest_s = slowest_s
        self._chance = chance
        self._listening: dict[int, Factory] = {}
        self._deaths = Counter[int]()
        self._cuts: set[frozenset[int]] = set()
        self._paused: set[int] = set()

    def delay_s(self) -> float:
        """Returns how long the next bytes travel."""
        return self._chance.uniform(0.0002, self.slowest_s)

    # Machines.

    def listen(self, machine: int, factory: Factory) -> None:
        """Lets a machine take connections, each with a protocol."""
        self._listening[machine] = factory

    def die(self, machine: int) -> None:
        """Ends all connections of a machine, whose process has died."""
        self._listening.pop(machine, None)
        self._deaths[machine] += 1
        for stream in [one for one in self.streams if one.machine == machine]:
            stream.abort()

    def address(self, machine: int, peer: int) -> Address:
        """Returns the address at which the process that runs on a machine now reaches another machine."""
        return Address(f"from-{machine}-{self._deaths[machine]}", FIRST_PORT + peer)

    async def connect(self, address: Address, factory: Factory) -> asyncio.BaseTransport:
        """Makes a connection.

        Raises ConnectionRefusedError where nothing listens there, and TimeoutError where the machines are cut off.
        """
        _, source, deaths = address.host.split("-")
        machine, peer = int(source), address.port - FIRST_PORT
        await asyncio.sleep(self.delay_s())
        if not self.passes(machine, peer):
            await asyncio.sleep(CONNECT_TIMEOUT_S)
        if not self.passes(machine, peer):
            raise TimeoutError(f"nothing answers at {address}")
        if peer not in self._listening or int(deaths) != self._deaths[machine]:
            raise ConnectionRefusedError(f"nothing listens at {address}")
        near = Stream(self, machine, peer, factory())
        far = Stream(self, peer, machine, self._listening[peer]())
        near.other, far.other = far, near
        for stream in (far, near):
            self.streams[stream] = None
            stream.protocol.connection_made(stream)
        return near

    # Faults.

    def passes(self, one: int, other: int) -> bool:
        """Returns whether bytes pass between two machines."""
        return not (self._paused & {one, other}) and frozenset({one, other}) not in self._cuts

    def cut(self, one: int, other: int) -> None:
        """Lets nothing pass between two machines from now on."""
        self._cuts.add(frozenset({one, other}))

    def heal(self, one: int, other: int) -> None:
        """Lets bytes pass again, also those that were sent meanwhile."""
        self._cuts.discard(frozenset({one, other}))
        self._release()

    def pause(self, machine: int) -> None:
        """Holds all that goes to and from a machine."""
        self._paused.add(machine)

    def resume(self, machine: int) -> None:
        """Delivers what was held."""
        self._paused.discard(machine)
        self._release()

    def heal_all(self) -> None:
        """Ends all cuts and pauses."""
        self._cuts.clear()
        self._paused.clear()
        self._release()

    def break_one(self) -> None:
        """Breaks a connection by chance, at both ends; what was on its way is lost."""
        if self.streams:
            stream = self._chance.choice(list(self.streams))
            stream.abort()
            stream.protocol.connection_lost(ConnectionResetError("the connection broke"))

    def _release(self) -> None:
        for stream in list(self.streams):
            self.loop.call_soon(stream.release)
