"""Requests that wait: one at a time for each key, in their order, whatever becomes of those before."""

import asyncio

import pytest

from millrace_broker.handlers.api import InOrder
from millrace_support.until import until


def test_work_of_one_key_goes_on_in_order_and_that_of_another_beside_it():
    async def scene():
        in_order, doors, done = InOrder(), {name: asyncio.Event() for name in "abc"}, []

        def put(key, name):
            async def work():
                await doors[name].wait()
                done.append(name)
                return name

            return in_order.put(key, work)

        first, second, other = put("key", "a"), put("key", "b"), put("other", "c")
        doors["b"].set()
        doors["c"].set()
        assert await other == "c"
        assert done == ["c"]
        assert in_order.is_busy("key")
        doors["a"].set()
        assert [await first, await second] == ["a", "b"]
        assert done == ["c", "a", "b"]
        await until(lambda: not in_order.is_busy("key"))

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_work_that_fails_or_is_cancelled_makes_way():
    async def scene():
        in_order = InOrder()

        async def fail():
            raise ValueError("work")

        async def stay():
            await asyncio.Event().wait()

        async def succeed():
            return 1

        failing, staying, last = (in_order.put("key", work) for work in (fail, stay, succeed))
        with pytest.raises(ValueError, match="work"):
            await failing
        staying.cancel()
        assert await last == 1

    asyncio.run(asyncio.wait_for(scene(), 60))
