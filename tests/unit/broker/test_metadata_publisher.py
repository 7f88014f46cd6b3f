"""How images pass from the metadata store's threads to the event loop, and from there to each listener."""

import asyncio
from dataclasses import replace

import pytest

from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.metadata_publisher import (
    LONGEST_PAUSE_S,
    MetadataListener,
    MetadataPublisher,
    NewestImage,
    _next_pause_s,
)

VIEW = MetadataImage("c", 1, {}, {})
NEWER = replace(VIEW, controller_id=2)


def played(scene):
    async def run():
        return await asyncio.wait_for(scene(NewestImage(asyncio.get_running_loop())), 30)

    return asyncio.run(run())


def test_a_view_that_was_not_taken_gives_way_to_a_newer_one():
    async def scene(images):
        images.put(VIEW)
        images.put(NEWER)
        return await images.take(), images.take_at_once()

    assert played(scene) == (NEWER, None)


def test_a_view_of_another_thread_ends_the_waiting():
    async def scene(images):
        taking = asyncio.ensure_future(images.take())
        await asyncio.sleep(0)
        await asyncio.to_thread(images.put, VIEW)
        return await taking

    assert played(scene) is VIEW


def test_the_last_view_is_taken_after_the_end_too():
    async def scene(images):
        images.put(VIEW)
        images.close()
        return await images.take(), await images.take()

    assert played(scene) == (VIEW, None)


def test_the_end_ends_the_waiting():
    async def scene(images):
        taking = asyncio.ensure_future(images.take())
        await asyncio.sleep(0)
        images.close()
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


def told(image, *all_heard):
    """Publishes an image after VIEW; returns once each listener has acted upon it."""

    async def scene(images):
        publisher = MetadataPublisher([one.listener for one in all_heard], images)
        publisher.follow(VIEW)
        images.put(image)
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

    async def scene(images):
        publisher = MetadataPublisher([failing.listener], images)
        publisher.follow(VIEW)
        images.put(NEWER)
        await failing.has_failed.wait()
        assert publisher.troubles == ("failing: not now",)
        images.put(replace(VIEW, controller_id=3))
        await failing.enough.wait()
        await publisher.stop()

    played(scene)
    assert failing.told == [(1, 2), (1, 3)]


def test_a_broker_whose_listener_fails_does_not_start():
    async def scene(images):
        with pytest.raises(LookupError, match="not now"):
            await MetadataPublisher([Heard("failing", failures=1).listener], images).start(VIEW)

    played(scene)


def test_pauses_grow_up_to_a_limit():
    pauses = [None]
    for _ in range(12):
        pauses.append(_next_pause_s(pauses[-1]))
    assert pauses[1:4] == [0.1, 0.2, 0.4]
    assert pauses[-1] == LONGEST_PAUSE_S
