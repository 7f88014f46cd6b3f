"""A request whose effects others see is handled in its turn: once all requests before it have their answers."""

import asyncio

import pytest

from millrace.clock import SystemClock
from millrace.wire.api import ApiKey
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header
from millrace_broker.broker import Broker
from millrace_broker.handlers.registry import APIS
from millrace_broker.startup.options import parse_options

OF_MEMBERS = {
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
}
TIMEOUT_S = 60


class Handlers:
    """Stand in for those of every API: they note which requests they are given, and let a fetch wait."""

    def __init__(self, services):
        self.services = services
        self.handled = []
        self.fetches = []
        services.apis = {key: api._replace(handle=self.of(api), handle_all=None) for key, api in APIS.items()}

    def of(self, api):
        def handle(services, request):
            self.handled.append(api.key)
            if api.key is not ApiKey.FETCH:
                return [b"answer"]
            self.fetches.append(asyncio.get_running_loop().create_future())
            return self.fetches[-1]

        return handle


def play(tmp_path, scene):
    async def with_a_broker():
        options = ["--standalone", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
        broker = Broker(parse_options(options), SystemClock())
        await broker.start()
        try:
            handlers = Handlers(broker._services)
            address = broker._server._listening[0].sockets[0].getsockname()
            reader, writer = await asyncio.open_connection(*address)
            async with asyncio.timeout(TIMEOUT_S):
                await scene(handlers, reader, writer)
            writer.close()
        finally:
            await broker.stop()

    asyncio.run(with_a_broker())


def requests(*keys):
    """Returns the bytes of requests whose correlation ids count from 0."""
    return b"".join(
        framed(encode_request_header(key, APIS[key].versions.minimum, number, "c"), b"")
        for number, key in enumerate(keys)
    )


async def correlation_ids(reader, count):
    found = []
    for _ in range(count):
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        found.append(int.from_bytes(frame[:4], "big"))
    return found


async def until(holds):
    while True:
        if holds():
            return
        await asyncio.sleep(0)


def test_the_requests_of_members_are_handled_in_turn():
    assert {key for key, api in APIS.items() if api.in_turn} == OF_MEMBERS


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: ApiKey(key).name.lower())
def test_a_request_behind_a_long_poll(tmp_path, key):
    """Only one that is handled in turn waits, and so does what is behind it; all answers leave in order."""
    line = (ApiKey.PRODUCE, ApiKey.FETCH, key, ApiKey.METADATA)

    async def scene(handlers, reader, writer):
        writer.write(requests(*line))
        at_once = line[:2] if key in OF_MEMBERS else line
        await until(lambda: len(handlers.handled) >= len(at_once))
        assert handlers.handled == list(at_once)
        for fetch in handlers.fetches:
            fetch.set_result([b"answer"])
        assert await correlation_ids(reader, len(line)) == list(range(len(line)))
        assert handlers.handled == list(line)

    play(tmp_path, scene)


@pytest.mark.parametrize("key", sorted(OF_MEMBERS), ids=lambda key: key.name.lower())
def test_each_waits_for_all_before_it(tmp_path, key):
    """Long polls one after the other, each with a request behind it, that arrive byte by byte or together."""
    line = (ApiKey.FETCH, key, ApiKey.FETCH, key, key, ApiKey.FETCH)

    async def scene(handlers, reader, writer):
        for one in requests(*line):
            writer.write(bytes([one]))
            await writer.drain()
        for number, upto in enumerate((1, 3, 6)):
            await until(lambda: len(handlers.handled) >= upto)  # noqa: B023
            assert handlers.handled == list(line[:upto])
            handlers.fetches[number].set_result([b"answer"])
        assert await correlation_ids(reader, len(line)) == list(range(len(line)))

    play(tmp_path, scene)


def test_a_client_that_leaves_while_several_requests_wait_together_is_no_error(tmp_path, caplog):
    waiting = []

    async def scene(handlers, reader, writer):
        def wait_for_all(services, together):
            waiting.extend(asyncio.get_running_loop().create_future() for _ in together)
            return waiting

        handlers.services.apis[ApiKey.PRODUCE] = APIS[ApiKey.PRODUCE]._replace(handle_all=wait_for_all)
        writer.write(requests(ApiKey.PRODUCE, ApiKey.PRODUCE))
        await until(lambda: len(waiting) == 2)
        writer.close()
        await until(lambda: all(one.cancelled() for one in waiting))

    play(tmp_path, scene)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
