"""A worker that works when a test says so, on the test's own thread: for the lanes in which logs are synced."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from millrace_broker.storage import LogManager, TopicPartition


class HeldWorker(Executor):
    """Keeps what it is given until `work`."""

    def __init__(self) -> None:
        self._held: list[tuple[Future[Any], Callable[[], object]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Keeps the work, and returns what will have its result."""
        future: Future[Any] = Future()
        self._held.append((future, lambda: fn(*args, **kwargs)))
        return future

    def work(self) -> int:
        """Does all that was kept, and returns how much it was."""
        held, self._held = self._held, []
        for future, work in held:
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 -- for whoever has the future
                future.set_exception(error)
        return len(held)


def hold_syncs(logs: LogManager, tell: Callable[[TopicPartition], object]) -> list[HeldWorker]:
    """Gives the lane of each data directory a held worker, and returns these."""
    workers = []
    for data_dir in logs.dirs.all:
        workers.append(HeldWorker())
        data_dir.lane.start(workers[-1], tell)
    return workers
