"""No connection keeps others waiting for longer than a turn, by many requests or by one that takes long."""

import asyncio

import pytest

from millrace.clock import SystemClock
from millrace.turns import each
from millrace.wire.api import ApiKey
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header
from millrace_broker.broker import Broker
from millrace_broker.handlers.registry import APIS
from millrace_broker.net.long_requests import TURN_S
from millrace_broker.net.slot import LONG_BYTES
from millrace_broker.startup.options import parse_options

TIMEOUT_S = 60
MANY = 100
GREEDY, MODEST = "greedy", "modest"


class Clock(SystemClock):
    """A clock by which handlers take as long as a test says."""

    def __init__(self):
        self.ahead_s = 0.0

    def monotonic_s(self):
        return SystemClock.monotonic_s() + self.ahead_s


class Handler:
    """Stands in for the real one. While the first request of the greedy client is handled, the modest one sends."""

    def __init__(self, clock, modest):
        self._clock = clock
        self._modest = modest
        self.events = []

    def handle(self, _, request):
        self.events.append(request.client_id)
        if request.client_id == GREEDY:
            self._take_long(len(request.body))
        return [b"answer"]

    def _take_long(self, body_bytes):
        if self._modest is not None:
            self._modest.write(request(MODEST))
            self._modest = None
        for _ in each(range(MANY if body_bytes > LONG_BYTES else 1)):
            self._clock.ahead_s += 2 * TURN_S
        self.events.append("handled")


def request(client_id, body=b""):
    return framed(encode_request_header(ApiKey.METADATA, 0, 1, client_id), body)


async def answered(reader, count):
    for _ in range(count):
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def play(tmp_path, sent, count):
    """Returns which requests were handled when, the greedy client having sent so many at once."""

    async def scene():
        clock = Clock()
        options = ["--standalone", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
        broker = Broker(parse_options(options), clock)
        await broker.start()
        try:
            address = broker._server._listening[0].sockets[0].getsockname()
            greedy, modest = await asyncio.open_connection(*address), await asyncio.open_connection(*address)
            handler = Handler(clock, modest[1])
            api = APIS[ApiKey.METADATA]._replace(handle=handler.handle)
            broker._services.apis = {ApiKey.METADATA: api}
            greedy[1].write(sent)
            async with asyncio.timeout(TIMEOUT_S):
                await answered(greedy[0], count)
                await answered(modest[0], 1)
            greedy[1].close()
            modest[1].close()
            return handler.events
        finally:
            await broker.stop()

    return asyncio.run(scene())


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        (request(GREEDY) * MANY, MANY),
        (request(GREEDY, bytes(LONG_BYTES + 1)), 1),
        (request(GREEDY, bytes(LONG_BYTES + 1)) * MANY, MANY),
    ],
    ids=["many requests", "a long one", "many long ones"],
)
def test_another_client_is_served_before_a_greedy_one_has_all_its_answers(tmp_path, sent, count):
    events = play(tmp_path, sent, count)
    assert events.count(GREEDY) == events.count("handled") == count
    assert events.index(MODEST) < len(events) - 1
    assert events[: events.index(MODEST)].count("handled") <= 3


def test_what_is_behind_a_long_request_is_handled_once_that_is_handled(tmp_path):
    sent = request(GREEDY, bytes(LONG_BYTES + 1)) + request("behind") * 3
    events = play(tmp_path, sent, 4)
    assert events.index("behind") > events.index("handled")
    assert events.count("behind") == 3
