"""Produce of many partitions goes on in turns: its answer and its records are those of one that is handled at once."""

import asyncio

import pytest

from millrace.records.compression import Codec
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace_broker.handlers import k00_produce
from millrace_broker.handlers.api import Request
from millrace_broker.net.long_requests import TURN_S, LongRequests
from millrace_broker.security.client_session import ClientSession
from millrace_support.requests_together import ProducingBroker
from millrace_support.transaction_home import EVENTS

VERSION = 9
BATCHES = [encode_batch([NewRecord(b"%d" % number)], codec=codec) for number, codec in enumerate(Codec)]
SHAPES = {
    "those that are there and others": [*enumerate(BATCHES), (0, b"no batch"), (0, None)],
    "plain": [(0, BATCHES[0])] * 5,
}


class HurryingClock:
    """A clock by which every look takes a turn."""

    def __init__(self):
        self._now_s = 0.0

    def monotonic_s(self):
        self._now_s += TURN_S
        return self._now_s


def request(partitions, session):
    data = [{"index": index, "records": records} for index, records in partitions]
    topics = [{"name": EVENTS.topic, "partition_data": data}]
    fields = {"transactional_id": None, "acks": 1, "timeout": 60_000, "topic_data": topics}
    return Request(VERSION, "c", memoryview(encode(ApiKey.PRODUCE, VERSION, Direction.REQUEST, fields)), session)


def handled(partitions, *, in_turns):
    """The answer, the records, and how often others had their turn."""

    async def scene():
        broker, session, turns = ProducingBroker({}, has_follower=False), ClientSession(), 0
        asked = request(partitions, session)
        if not in_turns:
            reply = k00_produce.handle(broker._services, asked)
            parts = await reply if isinstance(reply, asyncio.Future) else reply
        else:
            later = LongRequests(HurryingClock()).begin(
                lambda: k00_produce.handle(broker._services, asked), lambda: None
            )
            while not later.done():
                await asyncio.sleep(0)
                turns += 1
            parts = later.result()
        log = broker.partition.log
        return b"".join(parts), log.read(0, 1 << 20, up_to_offset=log.log_end_offset), turns

    return asyncio.run(scene())


@pytest.mark.parametrize("partitions", SHAPES.values(), ids=SHAPES)
def test_the_answer_and_the_records_are_the_same(partitions):
    *found, turns = handled(partitions, in_turns=True)
    *wanted, _ = handled(partitions, in_turns=False)
    assert found == wanted
    assert turns > len(partitions)
