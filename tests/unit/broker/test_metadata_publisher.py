"""How views pass from the metadata store's threads to the event loop."""

import asyncio
from dataclasses import replace

from millrace_broker.cluster.view import ClusterView
from millrace_broker.metadata_publisher import NewestView

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
