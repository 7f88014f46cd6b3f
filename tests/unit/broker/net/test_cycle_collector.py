"""What is old is out of the collector's sight, and what has ended in a cycle is found in the end."""

import asyncio
import gc
import weakref

import pytest

from millrace.clock import SystemClock
from millrace_broker.broker import Broker
from millrace_broker.net import cycle_collector
from millrace_broker.net.cycle_collector import CycleCollector
from millrace_broker.startup.options import parse_options


class Node:
    """An object that may be part of a cycle."""

    def __init__(self):
        self.other = self


@pytest.fixture(autouse=True)
def collector_as_it_was():
    gc.collect()
    yield
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert cycle_collector._freeze_old not in gc.callbacks


async def until(holds):
    while True:
        if holds():
            return
        await asyncio.sleep(0)


def play(scene):
    asyncio.run(scene(CycleCollector()))


def test_what_a_full_look_has_left_is_not_looked_at_again():
    async def scene(cycles):
        with cycles.frozen():
            nodes = [Node() for _ in range(1000)]  # many, as old ones may end meanwhile
            young = gc.get_freeze_count()
            gc.collect()
            assert gc.get_freeze_count() > young
            assert nodes[0] not in gc.get_objects()

    play(scene)


def test_a_long_requests_objects_are_not_looked_at_and_end_by_themselves():
    async def scene(cycles):
        with cycles.frozen():
            cycles.pause()
            cycles.pause()
            objects = [[number] for number in range(10_000)]
            kept = Node()
            ended = weakref.ref(kept)
            cycles.go_on()
            assert not gc.isenabled(), "another one is at work"
            cycles.go_on()
            assert gc.isenabled()
            frozen = gc.get_freeze_count()
            assert objects not in gc.get_objects()
            del objects
            assert gc.get_freeze_count() < frozen - 9_000
            kept.other = None
            del kept
            assert ended() is None

    play(scene)


def test_a_connection_that_has_ended_is_part_of_no_cycle(tmp_path):
    async def scene():
        options = parse_options(["--listen", "127.0.0.1:0", "--data", str(tmp_path), "--standalone"])
        broker = Broker(options, SystemClock())
        address = await broker.start()
        gc.disable()
        try:
            _, writer = await asyncio.open_connection(address.host, address.port)
            await until(lambda: broker._server._connections)
            ended = asyncio.Event()
            for connection in broker._server._connections:
                weakref.finalize(connection, ended.set)
            del connection
            writer.close()
            await asyncio.wait_for(ended.wait(), 60)
        finally:
            gc.enable()
            await broker.stop()

    asyncio.run(scene())


def test_a_frozen_cycle_ends_once_enough_connections_have(monkeypatch):
    monkeypatch.setattr(cycle_collector, "CONNECTIONS", 3)

    async def scene(cycles):
        with cycles.frozen():
            node = Node()
            ended = weakref.ref(node)
            gc.collect()
            del node
            for _ in range(2):
                cycles.connection_ended()
            gc.collect()
            assert ended() is not None
            cycles.connection_ended()
            assert ended() is None

    play(scene)


def test_a_frozen_cycle_ends_within_a_day(monkeypatch):
    monkeypatch.setattr(cycle_collector, "DAY_S", 0)

    async def scene(cycles):
        node = Node()
        ended = asyncio.Event()
        weakref.finalize(node, ended.set)
        gc.collect()
        del node
        with cycles.frozen():
            await asyncio.wait_for(ended.wait(), 60)

    play(scene)


def test_a_process_that_does_more_keeps_its_collector():
    async def scene(cycles):
        cycles.pause()
        node = Node()
        ended = weakref.ref(node)
        del node
        cycles.go_on()
        assert ended() is None or gc.collect() >= 0
        for _ in range(5):
            cycles.connection_ended()
        gc.collect()
        assert ended() is None

    play(scene)
