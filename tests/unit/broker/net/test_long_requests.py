"""A request that takes long has turns, between which the loop serves others; its answer is what its handler gives."""

import asyncio
import gc
import threading

import pytest

from millrace.errors import WireError
from millrace.turns import beside, each, later, pause
from millrace_broker.net.long_requests import GATHERED_PARTS, MOST_AT_ONCE, TURN_S, LongRequests


class Clock:
    """A clock by which every look takes a third of a turn."""

    def __init__(self):
        self._now_s = 0.0

    def monotonic_s(self):
        self._now_s += TURN_S / 3
        return self._now_s


def play(scene):
    return asyncio.run(asyncio.wait_for(scene(LongRequests(Clock())), 60))


def note(events, event):
    asyncio.get_running_loop().call_soon(events.append, event)


def test_others_are_served_between_the_entries_of_a_request():
    async def scene(requests):
        events = []

        def handle():
            for entry in each(range(9)):
                events.append(entry)
                note(events, "other")
            return [b"answer"]

        answer = await requests.begin(handle, lambda: events.append("handled"))
        assert answer == [b"answer"]
        return events

    events = play(scene)
    assert [event for event in events if isinstance(event, int)] == list(range(9))
    between = [events[events.index(entry) + 1] for entry in range(8)]
    assert between.count("other") >= 3, "turns end while entries are gone through"
    assert events.count("handled") == 1


def test_requests_have_turns_one_after_the_other_and_further_ones_wait():
    async def scene(requests):
        events = []

        def handler(name):
            return lambda: [events.append(name) for _ in each(range(6))]

        await asyncio.gather(*(requests.begin(handler(name), lambda: None) for name in range(MOST_AT_ONCE + 1)))
        return events

    events = play(scene)
    first, last = events[: 6 * MOST_AT_ONCE], events[-6:]
    assert set(first) == set(range(MOST_AT_ONCE))
    assert first != sorted(first)
    assert set(last) == {MOST_AT_ONCE}


def test_what_is_done_beside_the_loop_does_not_hold_it():
    async def scene(requests):
        passed = threading.Event()
        asyncio.get_running_loop().call_later(0, passed.set)
        return await requests.begin(lambda: [b"%d" % beside(lambda: passed.wait(60))], lambda: None)

    assert play(scene) == [b"1"]


def test_an_answer_that_comes_later_is_waited_for():
    async def scene(requests):
        handled = asyncio.Event()

        def handle():
            later = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(later.set_result, [b"later"])
            pause()
            return later

        answer = requests.begin(handle, handled.set)
        await handled.wait()
        return await answer

    assert play(scene) == [b"later"]


def test_a_coroutine_goes_on_in_turns_and_waits_meanwhile_for_others():
    async def scene(requests):
        events = []
        opened = [asyncio.get_running_loop().create_future() for _ in range(MOST_AT_ONCE)]

        async def work(name):
            events.append(f"{name} begins")
            await asyncio.sleep(0)
            found = await opened[name]
            assert asyncio.get_running_loop() is opened[name].get_loop()
            for _ in each(range(9)):
                note(events, "other")
            return [found]

        answers = [requests.begin(lambda name=name: later(work(name)), lambda: None) for name in range(MOST_AT_ONCE)]
        assert await requests.begin(lambda: [b"while they wait"], lambda: None) == [b"while they wait"]
        assert events == [f"{name} begins" for name in range(MOST_AT_ONCE)]
        for future in opened:
            future.set_result(b"found")
        assert await asyncio.gather(*answers) == [[b"found"]] * MOST_AT_ONCE
        assert "other" in events
        assert gc.isenabled()

    play(scene)


@pytest.mark.parametrize("is_later", [False, True])
def test_an_answer_of_many_parts_becomes_one_of_few(is_later):
    parts = [b"%d," % number for number in range(5 * GATHERED_PARTS // 2)]

    async def answer():
        return parts

    async def scene(requests):
        return await requests.begin(lambda: later(answer()) if is_later else parts, lambda: None)

    found = play(scene)
    assert (len(found), b"".join(found)) == (3, b"".join(parts))


@pytest.mark.parametrize("has_turns", [False, True])
def test_a_coroutine_raises_what_it_waits_for(has_turns):
    async def scene(requests):
        failing = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failing.set_exception, WireError("refused"))

        async def work():
            await failing

        with pytest.raises(WireError, match="refused"):
            await (requests.begin(lambda: later(work()), lambda: None) if has_turns else later(work()))

    play(scene)


def test_a_coroutine_may_have_a_timeout_and_is_ended_where_it_waits():
    async def scene(requests):
        ended, timed_out = [], asyncio.Event()

        async def work():
            pause()
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.get_running_loop().create_future()
            except TimeoutError:
                ended.append("timeout")
                timed_out.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append("cancelled")

        handled = asyncio.Event()
        answer = requests.begin(lambda: later(work()), handled.set)
        await timed_out.wait()
        answer.cancel()
        await handled.wait()
        await requests.begin(lambda: [b"next"], lambda: None)
        return ended

    assert play(scene) == ["timeout", "cancelled"]


@pytest.mark.parametrize("error", [WireError("no request"), ValueError("a bug")])
def test_an_error_is_raised_to_who_waits_and_the_next_request_has_its_turns(error):
    async def scene(requests):
        def fail():
            pause()
            raise error

        with pytest.raises(type(error), match=str(error)):
            await requests.begin(fail, lambda: None)
        return await requests.begin(lambda: [b"next"], lambda: None)

    assert play(scene) == [b"next"]
    assert gc.isenabled()


def test_of_those_whose_client_has_gone_the_begun_are_finished_and_the_others_never_begun():
    async def scene(requests):
        events, go_on = [], asyncio.Event()

        def handler(name):
            return lambda: [events.append(name) for _ in each(range(6))]

        answers = [requests.begin(handler(name), go_on.set) for name in range(MOST_AT_ONCE + 1)]
        await asyncio.sleep(0)
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        assert await requests.begin(lambda: [b"next"], lambda: None) == [b"next"]
        return events

    events = play(scene)
    assert sorted(events) == sorted([*range(MOST_AT_ONCE)] * 6)


def test_work_without_turns_goes_on_without_a_pause():
    pause()
    assert (list(each("abc")), beside(lambda: 1)) == (["a", "b", "c"], 1)
