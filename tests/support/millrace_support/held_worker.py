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

    def work(self, most: int | None = None) -> int:
        """Does what was kept, all of it or the oldest `most`, and returns how much it was."""
        held, self._held = self._held[:most], self._held[len(self._held[:most]) :]
        for future, work in held:
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 -- for whoever has the future
                future.set_exception(error)
        return len(held)


class WorkerOfALoop(HeldWorker):
    """Does what it is given on the loop, one after the other, each a while later; `call_later` sets the timers."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object], while_s: Callable[[], float]) -> None:
        super().__init__()
        self._call_later = call_later
        self._while_s = while_s
        self._is_at_work = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Has the work done, and returns what will have its result."""
        future = super().submit(fn, *args, **kwargs)
        self._go_on_later()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Does all that is left."""
        while self._held:
            self.work()

    def _go_on_later(self) -> None:
        if self._held and not self._is_at_work:
            self._is_at_work = True
            self._call_later(self._while_s(), self._go_on)

    def _go_on(self) -> None:
        self.work(most=1)
        self._is_at_work = False
        self._go_on_later()


def hold_syncs(logs: LogManager, tell: Callable[[TopicPartition], object]) -> list[HeldWorker]:
    """Gives the lane of each data directory a held worker, and returns these."""
    workers = []
    for data_dir in logs.dirs.all:
        workers.append(HeldWorker())
        data_dir.lane.start(workers[-1], tell)
    return workers
