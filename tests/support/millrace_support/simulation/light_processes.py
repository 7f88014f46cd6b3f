"""Makes many brokers in one process cheap: no threads, small buffers, no garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from millrace_broker.replication import broker_link
from millrace_broker.storage.manager import opening
from millrace_broker.storage.throttle import Throttle

SMALL_BUFFER_BYTES = 8 << 10

T = TypeVar("T")


class InlineExecutor(Executor):
    """An executor that does its work at once, in the thread that asks for it."""

    def __init__(self, *_: object, **__: object) -> None:
        """Takes what a `ThreadPoolExecutor` takes."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Does the work and returns its outcome."""
        outcome: Future[T] = Future()
        try:
            outcome.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  as a thread hands on whatever its function raises
            outcome.set_exception(error)
        return outcome


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Lets garbage lie, some megabytes of a simulation, instead of looking for it a hundred times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def light_processes() -> Iterator[None]:
    """Opens and closes logs without threads, compacts without breaks, and gives links small buffers, which grow.

    Garbage lies until the end.
    """
    with ExitStack() as patches:
        patches.enter_context(patch.object(opening, "ThreadPoolExecutor", InlineExecutor))
        patches.enter_context(patch.object(broker_link, "SCRATCH_BYTES", SMALL_BUFFER_BYTES))
        patches.enter_context(patch.object(Throttle, "_pause", lambda *_: None))
        patches.enter_context(_without_garbage_collection())
        yield
