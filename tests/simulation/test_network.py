"""The network of simulations: bytes come late, in order and once, or the connection breaks."""

import asyncio
from contextlib import closing
from random import Random

import pytest

from millrace_support.simulation.network import Network
from millrace_support.simulation.virtual_time import VirtualTimeLoop


class Receiver(asyncio.Protocol):
    """Notes what comes."""

    def __init__(self):
        self.received = b""
        self.is_lost = False

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data

    def connection_lost(self, exc):
        self.is_lost = True


def played(scene):
    loop = VirtualTimeLoop(Random(1))
    network = Network(loop, Random(2))
    server = Receiver()
    network.listen(1, lambda: server)
    with closing(loop):
        loop.run_until_complete(scene(network, server))


async def connected(network):
    client = Receiver()
    return client, await network.connect(network.address(2, 1), lambda: client)


def test_bytes_come_in_order_after_a_while():
    async def scene(network, server):
        client, stream = await connected(network)
        for number in range(100):
            stream.write(b"%d " % number)
        assert not server.received
        await asyncio.sleep(1)
        assert server.received.split() == [b"%d" % number for number in range(100)]
        server.transport.write(b"answer")
        await asyncio.sleep(1)
        assert client.received == b"answer"

    played(scene)


def test_bytes_wait_while_machines_are_cut_off_and_come_late():
    async def scene(network, server):
        _, stream = await connected(network)
        network.cut(1, 2)
        stream.write(b"late")
        await asyncio.sleep(100)
        assert not server.received
        network.heal(1, 2)
        stream.write(b"r")
        await asyncio.sleep(1)
        assert server.received == b"later"

    played(scene)


def test_a_paused_machine_hears_nothing_and_is_not_heard():
    async def scene(network, server):
        client, stream = await connected(network)
        network.pause(2)
        server.transport.write(b"x")
        stream.write(b"y")
        await asyncio.sleep(1)
        assert (client.received, server.received) == (b"", b"")
        network.heal_all()
        await asyncio.sleep(1)
        assert (client.received, server.received) == (b"x", b"y")

    played(scene)


def test_a_machine_that_dies_breaks_its_connections_and_takes_none():
    async def scene(network, _):
        client, _ = await connected(network)
        network.die(1)
        await asyncio.sleep(1)
        assert client.is_lost
        with pytest.raises(ConnectionRefusedError):
            await connected(network)

    played(scene)


def test_a_process_that_died_connects_no_more_though_its_machine_is_back():
    async def scene(network, server):
        address = network.address(1, 2)
        network.die(1)
        network.listen(1, lambda: server)
        network.listen(2, Receiver)
        with pytest.raises(ConnectionRefusedError):
            await network.connect(address, Receiver)
        await network.connect(network.address(1, 2), Receiver)

    played(scene)


def test_a_broken_connection_ends_on_both_sides():
    async def scene(network, server):
        client, _ = await connected(network)
        network.break_one()
        await asyncio.sleep(1)
        assert client.is_lost
        assert server.is_lost

    played(scene)
