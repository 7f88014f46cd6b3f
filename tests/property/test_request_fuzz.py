"""Random and damaged requests for every API and version: an answer, or the typed error that closes the connection.

The handlers of a real broker are called in this process, so that many inputs are tried in a second and any other
exception is seen with its input.
"""

import asyncio
import resource
import time
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from millrace.clock import SystemClock
from millrace.errors import MillraceError, WireError
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode
from millrace.wire.header import read_request_header
from millrace_broker.broker import Broker
from millrace_broker.handlers.api import Request
from millrace_broker.security.client_session import ClientSession
from millrace_broker.startup.options import parse_options
from millrace_support.random_requests import RequestFuzzer
from millrace_support.random_words import TOPICS, Words

INPUTS_OF_A_ROUND = 5000
FIRST_INPUTS = 2000
TENDED_AFTER, RENEWED_AFTER = 500, 20_000
MAX_WAITING = 200
MAX_STRANGE_TOPICS = 20
MAX_GROWTH_BYTES = 300 << 20
JOINS = {ApiKey.JOIN_GROUP: range(10), ApiKey.CONSUMER_GROUP_HEARTBEAT: range(2)}


class Driver:
    """Feeds one broker and keeps count."""

    def __init__(self, broker, random):
        self.services = broker._services
        self.words = Words()
        self.words.paths += [str(one) for one in self.services.replicas.logs.by_data_dir()]
        self.fuzzer = RequestFuzzer(random, {key: api.versions for key, api in self.services.apis.items()}, self.words)
        self.outcomes = Counter()
        self.slowest = (0.0, b"")
        self._waiting = deque()

    async def run(self, inputs):
        for number in range(inputs):
            if number % TENDED_AFTER == 0:
                await self.tend()
            frame = self.fuzzer.frame()
            before = time.perf_counter()
            try:
                await self.feed(frame)
            except Exception as error:
                error.add_note(f"the input: {frame.hex()}")
                raise
            self.slowest = max(self.slowest, (time.perf_counter() - before, frame))

    async def feed(self, frame):
        """One frame, as a connection hands it on."""
        try:
            header = read_request_header(memoryview(frame))
            api = self.services.apis.get(header.api_key)
            if api is None or (header.api_version not in api.versions and api.key != ApiKey.API_VERSIONS):
                self.outcomes["refused"] += 1
                return
            body = memoryview(frame)[header.body_position :]
            reply = api.handle(
                self.services, Request(header.api_version, header.client_id, body, ClientSession("127.0.0.1"))
            )
        except WireError:
            self.outcomes["refused"] += 1
            return
        self.outcomes["answered"] += 1
        if isinstance(reply, asyncio.Future):
            self._waiting.append((frame, header, reply))
            await asyncio.sleep(0)
            if len(self._waiting) > MAX_WAITING:
                await self.settle(MAX_WAITING // 2)

    async def settle(self, left=0):
        """Wait a little for the oldest answers; those that take longer lose their connection."""
        leaving = [self._waiting.popleft() for _ in range(len(self._waiting) - left)]
        if leaving:
            await asyncio.wait([reply for *_, reply in leaving], timeout=0.02)
        for frame, header, reply in leaving:
            if not reply.done():
                reply.cancel()
            elif not reply.cancelled():
                self._learn(frame, header, reply)

    def _learn(self, frame, header, reply):
        error = reply.exception()
        if isinstance(error, WireError):
            self.outcomes["refused"] += 1
            return
        if error is not None:
            error.add_note(f"the input: {frame.hex()}")
            raise error
        if header.api_version in JOINS.get(header.api_key, ()):
            answer = decode(header.api_key, header.api_version, Direction.RESPONSE, b"".join(reply.result()))
            if answer.member_id:
                self.words.members.append(answer.member_id)

    async def tend(self):
        """The topics that are produced to are there; not too many others are."""
        await self.settle()
        topics = self.services.topics
        strange = [name for name in self.services.metadata.image.topics if name not in (*TOPICS, "__consumer_offsets")]
        worn = TOPICS[:-1] if self.outcomes.total() % RENEWED_AFTER == 0 else ()
        for name in (*strange[MAX_STRANGE_TOPICS:], *worn):
            with suppress(MillraceError):
                await topics.delete(name)
        with suppress(MillraceError):
            await self.services.groups.topic.create()
        for name in TOPICS[:-1]:
            config = {"cleanup.policy": "compact"} if name == "compacted" else {}
            with suppress(MillraceError):
                await topics.create(name, partitions=3 if name == "many" else 1, config=config)
        self.words.topic_ids[2:] = [one.topic_id for one in self.services.metadata.image.topics.values()]


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.usefixtures("without_logs")
@pytest.mark.timeout(1800)
@pytest.mark.soak(rounds=4, minutes=15)
def test_a_random_request_is_answered_or_refused(tmp_path, rounds, record_property):
    options = [
        "--standalone",
        "--data",
        str(tmp_path),
        "--listen",
        "127.0.0.1:0",
        "--set",
        "auto.create.topics.enable=false",
    ]

    async def run():
        broker = Broker(parse_options(options), SystemClock())
        await broker.start()
        try:
            driver = Driver(broker, Random(0))
            await driver.run(FIRST_INPUTS)
            before, started = resident_bytes(), time.monotonic()
            for _ in rounds:
                await driver.run(INPUTS_OF_A_ROUND)
            record_property("inputs", sum(driver.outcomes.values()))
            record_property("answered", driver.outcomes["answered"])
            record_property("refused", driver.outcomes["refused"])
            record_property("inputs a second", round(driver.outcomes.total() / (time.monotonic() - started)))
            record_property("slowest ms", round(1000 * driver.slowest[0]))
            record_property("MB before", before >> 20)
            record_property("MB after", resident_bytes() >> 20)
            assert resident_bytes() - before < MAX_GROWTH_BYTES
            assert [one for one in await broker._maintenance.verify() if one.findings] == []
        finally:
            await broker.stop()

    asyncio.run(run())
