"""Answers that follow from tickets: they leave in the order in which the tickets are given."""

import asyncio
from itertools import permutations

import pytest

from millrace_broker.handlers.responses import respond_once_known

NAMES = ("leader", "follower", "another")


def left(handled, given, pause_after):
    """The order in which answers leave; the loop goes on once after so many of the requests."""

    async def scene():
        loop, order = asyncio.get_running_loop(), []
        tickets = {name: loop.create_future() for name in NAMES}
        for number, name in enumerate(handled):
            answer = respond_once_known(tickets[name], str.upper)
            answer.add_done_callback(lambda done: order.append(done.result()))
            if number == pause_after:
                await asyncio.sleep(0)
        for name in given:
            tickets[name].set_result(name)
        while True:
            if len(order) == len(NAMES):
                return order
            await asyncio.sleep(0)

    return asyncio.run(scene())


@pytest.mark.parametrize("handled", tuple(permutations(NAMES)), ids="-".join)
@pytest.mark.parametrize("given", tuple(permutations(NAMES)), ids="-".join)
def test_answers_leave_as_their_tickets_are_given(handled, given):
    """Whichever requests came earlier, in the same turn of the loop or in one before."""
    for pause_after in range(len(NAMES)):
        assert left(handled, given, pause_after) == [name.upper() for name in given]


def test_a_ticket_is_cancelled_with_its_answer():
    async def scene():
        ticket = asyncio.get_running_loop().create_future()
        respond_once_known(ticket, str.upper).cancel()
        await asyncio.sleep(0)
        return ticket.cancelled()

    assert asyncio.run(scene())


def test_an_answer_that_cannot_be_written_raises():
    async def scene():
        ticket = asyncio.get_running_loop().create_future()
        answer = respond_once_known(ticket, str.upper)
        ticket.set_result(None)
        await answer

    with pytest.raises(TypeError, match="upper"):
        asyncio.run(scene())
