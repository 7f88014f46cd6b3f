"""Brings each newer metadata image to the parts of the broker that act upon it, which are its listeners.

The metadata store tells of images on its own threads. They are acted upon on the event loop, one at a time: the newest
against the one that a listener has acted upon last. An image is told to the listeners in their order, and the last ones
show it to clients. The failure of one keeps it from no other: it is logged, counted, named in the broker's health, and
the listener is told again after a pause, which grows, or with the next image; what it has missed is in that, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from millrace.errors import is_unforeseen
from millrace_broker.cluster.metadata_image import MetadataImage

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0

Take = Callable[[MetadataImage, MetadataImage], Awaitable[None]]


class NewestImage:
    """Passes metadata images from the store's threads to the event loop; a newer one replaces one not yet taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._images: deque[MetadataImage] = deque(maxlen=1)
        self._changed = asyncio.Event()
        self.is_closed = False
        """Says whether `close` was called, after which no image is waited for."""

    def put(self, image: MetadataImage) -> None:
        """Keeps an image to be taken, in place of one that has not been taken; any thread may call it."""
        self._images.append(image)
        self._loop.call_soon_threadsafe(self._changed.set)

    def take_at_once(self) -> MetadataImage | None:
        """Removes and returns the image that `put` has kept, if nobody has taken it yet; else returns None."""
        return self._images.pop() if self._images else None

    async def take_within(self, pause_s: float | None) -> MetadataImage | None:
        """Waits for an image for `pause_s` seconds (None: without end); returns None if none came, or after `close`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                return await self.take()
        return None

    async def take(self) -> MetadataImage | None:
        """Waits for the next image of `put` and returns it; returns None once there is none and `close` was called."""
        while (image := self.take_at_once()) is None and not self.is_closed:
            self._changed.clear()
            await self._changed.wait()
        return image

    def close(self) -> None:
        """Ends the waits of `take`, which from now on returns None where no image is left."""
        self.is_closed = True
        self._changed.set()


@dataclass(slots=True)
class MetadataListener:
    """A part of the broker that acts upon metadata images.

    Attributes:
        name: What it is called in logs and in the broker's health.
        take: Takes the image that it has acted upon last and a newer one, and acts upon what differs. It may be told
            the same again if it raises an error.
        accepted: The image that it has acted upon last.
        failures: How often it has failed.
        trouble: Why it has not acted upon the newest image; None if it has.
    """

    name: str
    take: Take
    accepted: MetadataImage
    failures: int = 0
    trouble: str | None = None

    async def hear(self, image: MetadataImage) -> Exception | None:
        """Calls `take` with the last image and this one; returns the error that it raises, or None."""
        try:
            await self.take(self.accepted, image)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the other listeners are told
            self.failures += 1
            self.trouble = f"{self.name}: {error or type(error).__name__}"
            return error
        self.accepted, self.trouble = image, None
        return None


class MetadataPublisher:
    """Calls the listeners with each newer metadata image, one listener after the other."""

    def __init__(self, listeners: Iterable[MetadataListener], images: NewestImage) -> None:
        self._listeners = tuple(listeners)
        self._images = images
        self._following: asyncio.Task[None] | None = None

    @property
    def troubles(self) -> tuple[str, ...]:
        """Returns a text for each listener that could not act upon the newest image, on why."""
        return tuple(one.trouble for one in self._listeners if one.trouble is not None)

    @property
    def failures(self) -> Mapping[str, int]:
        """Returns how often each listener has failed, by name."""
        return {one.name: one.failures for one in self._listeners}

    async def start(self, image: MetadataImage) -> None:
        """Calls the listeners with the first image; raises the error of one that fails, as the broker can't start."""
        for listener in self._listeners:
            if (error := await listener.hear(image)) is not None:
                raise error

    def follow(self, image: MetadataImage) -> None:
        """Begins to call the listeners with every image that comes after this one."""
        self._following = asyncio.create_task(self._follow(image))

    async def stop(self) -> None:
        """Passes on the image that has come already, if any, and no more; returns when no listener is at work."""
        self._images.close()
        if self._following is not None:
            await self._following

    async def _follow(self, image: MetadataImage) -> None:
        pause_s: float | None = None
        while True:
            newer = await self._images.take_within(pause_s)
            if newer is None and self._images.is_closed:
                return
            failed = await self._publish(image if newer is None else newer, is_again=newer is None)
            image = image if newer is None else newer
            pause_s = _next_pause_s(pause_s) if failed else None

    async def _publish(self, image: MetadataImage, *, is_again: bool) -> bool:
        """Calls the listeners that have not acted upon the image; returns whether one failed. Errors are logged."""
        failed = False
        for listener in self._listeners:
            if listener.accepted is not image and (error := await listener.hear(image)) is not None:
                failed = True
                sentence = "a change of the cluster could not be acted upon, which is tried again: %s"
                trace = error if is_unforeseen(error) and not is_again else None  # once is enough
                logger.error(sentence, listener.trouble, exc_info=trace)
        return failed


def _next_pause_s(pause_s: float | None) -> float:
    return FIRST_PAUSE_S if pause_s is None else min(2 * pause_s, LONGEST_PAUSE_S)
