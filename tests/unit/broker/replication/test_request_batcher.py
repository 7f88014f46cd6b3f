"""Asking other brokers in batches: one request in flight for each, and what becomes of those that can't be asked."""

import asyncio

import pytest

from millrace.addresses import Address
from millrace.errors import AnswerLostError, BrokerUnreachableError
from millrace.wire.api import ApiKey
from millrace_broker.replication.broker_link import RequestBatcher, in_rounds
from millrace_support.scripted_broker import ScriptedBroker, answer_frame
from millrace_support.until import until


async def echo(header, message):
    return answer_frame(header, bytes(message))


class Batches:
    """Sends numbers as bytes; `sent` has the batches, each of which waits while `door` is not set."""

    def __init__(self, addresses):
        self.sent = []
        self.door = asyncio.Event()
        self.door.set()
        self.batcher = RequestBatcher(self.exchange, addresses.get, "test")

    async def exchange(self, link, items):
        self.sent.append(list(items))
        await self.door.wait()
        answer = await link.exchange(ApiKey.FETCH, 11, bytes(items))
        return list(answer)


def run(scene):
    asyncio.run(asyncio.wait_for(scene(), 60))


def test_what_is_asked_together_goes_together_and_what_is_asked_meanwhile_next():
    async def scene():
        async with ScriptedBroker(echo) as broker:
            batches = Batches({1: broker.address})
            batches.door.clear()
            first = [batches.batcher.ask(1, number) for number in range(3)]
            await until(lambda: batches.sent == [[0, 1, 2]])
            then = [batches.batcher.ask(1, number) for number in range(3, 6)]
            then[1].cancel()
            batches.door.set()
            assert await asyncio.gather(*first) == [0, 1, 2]
            assert [await then[0], await then[2]] == [3, 5]
            assert batches.sent == [[0, 1, 2], [3, 5]]
            assert broker.connections == 1
            assert [one.client_id for one in broker.requests] == ["test"] * 2
            await batches.batcher.close()

    run(scene)


def test_one_broker_does_not_wait_for_another():
    async def scene():
        async def silent(header, message):
            await asyncio.Event().wait()

        async with ScriptedBroker(silent) as slow, ScriptedBroker(echo) as quick:
            batches = Batches({1: slow.address, 2: quick.address})
            waiting = batches.batcher.ask(1, 1)
            assert await batches.batcher.ask(2, 2) == 2
            assert not waiting.done()
            await batches.batcher.close()

    run(scene)


def test_a_broker_that_hangs_up_fails_the_batch_and_is_connected_to_again():
    async def scene():
        answers = iter((None, b"\x07"))

        async def answer(header, message):
            told = next(answers)
            return None if told is None else answer_frame(header, told)

        async with ScriptedBroker(answer) as broker:
            batches = Batches({1: broker.address})
            lost = [batches.batcher.ask(1, 1), batches.batcher.ask(1, 2)]
            for each in lost:
                with pytest.raises(AnswerLostError):
                    await each
            assert await batches.batcher.ask(1, 3) == 7
            assert broker.connections == 2
            await batches.batcher.close()

    run(scene)


def test_a_broker_is_asked_where_it_is_now():
    async def scene():
        async with ScriptedBroker(echo) as first, ScriptedBroker(echo) as second:
            addresses = {1: first.address}
            batches = Batches(addresses)
            assert await batches.batcher.ask(1, 1) == 1
            addresses[1] = second.address
            assert await batches.batcher.ask(1, 2) == 2
            assert (len(first.requests), len(second.requests)) == (1, 1)
            del addresses[1]
            with pytest.raises(BrokerUnreachableError, match="not known"):
                await batches.batcher.ask(1, 3)
            addresses[1] = Address("127.0.0.1", 1)
            with pytest.raises(BrokerUnreachableError):
                await batches.batcher.ask(1, 4)
            await batches.batcher.close()

    run(scene)


def test_rounds_have_each_key_once_and_keep_the_order():
    items = ["a1", "b1", "a2", "c1", "a3", "b2"]
    assert in_rounds(items, lambda item: item[0]) == [["a1", "b1", "c1"], ["a2", "b2"], ["a3"]]
    assert in_rounds([], str) == []
