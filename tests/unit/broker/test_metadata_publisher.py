"""How views pass from the metadata store's threads to the event loop, and from there to each listener."""

import asyncio
from dataclasses import replace

import pytest

from millrace_broker.cluster.view import ClusterView
from millrace_broker.metadata_publisher import (
    LONGEST_PAUSE_S,
    MetadataListener,
    MetadataPublisher,
    NewestView,
    _next_pause_s,
)

VIEW = ClusterView("c", 1, {}, {})
NEWER = replace(VIEW, controller_id=2)


def played(scene):
    async def run():
        return await asyncio.wait_for(scene(NewestView(asyncio.get_running_loop())), 30)

    return asyncio.run(run())


def test_a_view_that_was_not_taken_gives_way_to_a_newer_one():
    async def scene(views):
        views.put(VIEW)
        views.put(NEWER)
        return await views.take(), views.take_at_once()

    assert played(scene) == (NEWER, None)


def test_a_view_of_another_thread_ends_the_waiting():
    async def scene(views):
        taking = asyncio.ensure_future(views.take())
        await asyncio.sleep(0)
        await asyncio.to_thread(views.put, VIEW)
        return await taking

    assert played(scene) is VIEW


def test_the_last_view_is_taken_after_the_end_too():
    async def scene(views):
        views.put(VIEW)
        views.close()
        return await views.take(), await views.take()

    assert played(scene) == (VIEW, None)


def test_the_end_ends_the_waiting():
    async def scene(views):
        taking = asyncio.ensure_future(views.take())
        await asyncio.sleep(0)
        views.close()
        return await taking

    assert played(scene) is None


class Heard:
    """A listener, what it was told, and how often it is still to fail."""

    def __init__(self, name, failures=0):
        self.told = []
        self._failures = failures
        self.listener = MetadataListener(name, self._take, VIEW)
        self.enough, self.has_failed = asyncio.Event(), asyncio.Event()

    async def _take(self, before, after):
        self.told.append((before.controller_id, after.controller_id))
        if self._failures:
            self._failures -= 1
            self.has_failed.set()
            raise LookupError("not now")
        self.enough.set()


def told(view, *all_heard):
    """Publishes a view after VIEW; returns once each listener has acted upon it."""

    async def scene(views):
        publisher = MetadataPublisher([one.listener for one in all_heard], views)
        publisher.follow(VIEW)
        views.put(view)
        for one in all_heard:
            await one.enough.wait()
        await publisher.stop()
        return publisher

    return played(scene)


def test_listeners_are_told_in_order_what_they_have_acted_upon_and_what_is_new():
    heard = [Heard("first"), Heard("second")]
    publisher = told(NEWER, *heard)
    assert [one.told for one in heard] == [[(1, 2)]] * 2
    assert (publisher.troubles, publisher.failures) == ((), {"first": 0, "second": 0})


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_listener_that_fails_is_told_again_and_keeps_no_other_from_it(place):
    heard = [Heard(str(index), failures=2 * (index == place)) for index in range(3)]
    publisher = told(NEWER, *heard)
    assert [len(one.told) for one in heard] == [3 if index == place else 1 for index in range(3)]
    assert publisher.failures == {str(index): 2 * (index == place) for index in range(3)}
    assert publisher.troubles == ()


def test_what_a_listener_has_missed_is_in_the_next_view():
    failing = Heard("failing", failures=1)

    async def scene(views):
        publisher = MetadataPublisher([failing.listener], views)
        publisher.follow(VIEW)
        views.put(NEWER)
        await failing.has_failed.wait()
        assert publisher.troubles == ("failing: not now",)
        views.put(replace(VIEW, controller_id=3))
        await failing.enough.wait()
        await publisher.stop()

    played(scene)
    assert failing.told == [(1, 2), (1, 3)]


def test_a_broker_whose_listener_fails_does_not_start():
    async def scene(views):
        with pytest.raises(LookupError, match="not now"):
            await MetadataPublisher([Heard("failing", failures=1).listener], views).start(VIEW)

    played(scene)


def test_pauses_grow_up_to_a_limit():
    pauses = [None]
    for _ in range(12):
        pauses.append(_next_pause_s(pauses[-1]))
    assert pauses[1:4] == [0.1, 0.2, 0.4]
    assert pauses[-1] == LONGEST_PAUSE_S
