"""A thread whose changes to a disk a test looks at one by one (`crash_fs`)."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Semaphore, Thread


class Life(Thread):
    """A thread that changes the disk while a test looks on; the two take turns, and only one of them runs at a time."""

    def __init__(self, life: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self.has_ended = self._is_free = False
        self._life = life
        self._test, self._change = Semaphore(0), Semaphore(0)
        self._one_at_a_time = Lock()  # a life may have threads, too

    def run(self) -> None:
        """Runs the whole life."""
        try:
            self._life()
        except BaseException as error:  # noqa: BLE001  # for the test
            self.error = error
        finally:
            self.has_ended = True
            self._test.release()

    def await_test(self) -> None:
        """Waits before a change until the test has looked at the disk; for the life's threads."""
        with self._one_at_a_time:
            if not self._is_free:
                self._test.release()
                self._change.acquire()

    def await_change(self) -> None:
        """Waits until the life is before a change, or has ended; for the test."""
        self._test.acquire()

    def go_on(self) -> None:
        """Lets the life make its change."""
        self._change.release()

    def go_on_to_the_end(self) -> None:
        """Lets the life make all of its changes, and waits for its end."""
        self._is_free = True
        self.go_on()
        self.join()
