"""The lane in which the logs of one data directory are synced, so that a slow disk stops nobody but its own writers.

    append that owes a sync ──► put(log) ──► the worker syncs what has gathered ──► tell(partition)
    append during a sync    ──► put(log) ──────────────────────────────────────► the worker's next round

A log waits in the lane once, however many appends wait for its sync: one sync takes them all (group commit). An append
that came while its log was being synced has the log put in again, and the next round takes it.

A directory that has failed is told of like one that was synced: whoever waits looks, and finds it offline. A sync that
found no free descriptor, or no room for indexes or leader epochs, is tried again in a later round, as nothing was lost.

Other work that waits for the same disk has its turn between two rounds (`do`).

A lane without a worker, as tools have it that open logs by themselves, syncs at once, on the caller's thread.

Threads: `put` and `do` may be called on any, `start` and `stop` on the event loop's or before there is one. `tell` is
called on the worker's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Event, Lock
from typing import Protocol, TypeVar

from millrace.errors import StorageError
from millrace_broker.storage.filenames import TopicPartition

logger = logging.getLogger(__name__)

RETRY_S = 0.1  # after a sync that is to be tried again

Outcome = TypeVar("Outcome")


class OwesSync(Protocol):
    """A log, as the sync lane (the worker that syncs all logs of one data directory) uses it."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition whose log this is."""

    @property
    def is_offline(self) -> bool:
        """Whether the log's data directory has failed, so that it takes no sync any more."""

    def sync(self) -> bool:
        """Blocks until all that is appended so far is on the disk; returns whether it is. Raises StorageError."""


Tell = Callable[[TopicPartition], object]


class SyncLane:
    """Syncs the logs of one data directory, one after the other, on a worker thread of its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[OwesSync, None] = {}
        self._is_at_work = False
        self._worker: Executor | None = None
        self._tell: Tell = lambda _: None
        self._failing: set[OwesSync] = set()
        self._retry_s = RETRY_S
        self._is_stopped = Event()

    def start(self, worker: Executor, tell: Tell, retry_s: float = RETRY_S) -> None:
        """Has `worker` sync from now on; `tell` gets each partition that was synced, or whose disk failed."""
        self._tell = tell
        self._retry_s = retry_s
        self._worker = worker

    def stop(self) -> None:
        """Blocks until all waiting logs are synced; later syncs are made at once, on the caller's thread."""
        with self._lock:
            worker, self._worker = self._worker, None
        self._is_stopped.set()
        if worker is not None:
            worker.shutdown()

    def put(self, log: OwesSync) -> None:
        """Has the worker sync a log soon; without a worker, syncs it now, which may raise StorageError."""
        with self._lock:
            if self._worker is not None:
                self._waiting[log] = None
                if not self._is_at_work:
                    self._is_at_work = True
                    self._worker.submit(self._work)
                return
        log.sync()

    def do(self, work: Callable[[], Outcome]) -> Future[Outcome]:
        """Has the worker run `work`, which waits for the disk; without a worker it is run at once."""
        with self._lock:
            if self._worker is not None:
                return self._worker.submit(work)
        done: Future[Outcome] = Future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 -- whoever has the future gets it
            done.set_exception(error)
        return done

    def _work(self) -> None:
        """Syncs the logs that wait, once each; other work comes before those that were added meanwhile or failed."""
        while True:
            with self._lock:
                gathered, self._waiting = self._waiting, {}
            left = [log for log in gathered if not self._is_done(log)]
            if left:
                self._is_stopped.wait(self._retry_s)
            with self._lock:
                self._waiting.update(dict.fromkeys(left))
                self._is_at_work = bool(self._waiting)
                if self._is_at_work and self._worker is not None:
                    self._worker.submit(self._work)
                if not self._is_at_work or self._worker is not None:
                    return

    def _is_done(self, log: OwesSync) -> bool:
        """Syncs a log and calls `tell`; returns false, and logs the reason once, where it is to be tried again."""
        try:
            failure = None if log.sync() else "the disk has no room for all of it"
        except StorageError as error:
            failure = str(error)
        except Exception:  # the lane goes on for its other logs
            logger.exception("%s can't be synced", log.topic_partition)
            failure = None
        if failure is not None and not log.is_offline and not self._is_stopped.is_set():
            if log not in self._failing:
                logger.warning("%s is synced again every %.1f s: %s", log.topic_partition, self._retry_s, failure)
                self._failing.add(log)
            return False
        self._failing.discard(log)
        self._tell(log.topic_partition)
        return True
