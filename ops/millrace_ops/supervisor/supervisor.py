"""Child processes started in order, watched, and stopped in reverse order.

    start(a)      a runs until its probe says ready     ┐
    complete(x)   x runs to its end                     │
    start(b, c)   b and c start together                │  a child that ends by itself: PlatformError names it,
    wait()        returns only by an exception          ┘  its status and its last log lines, or it starts again
    stop()        c and b, then a: SIGTERM, a bounded wait, SIGKILL for what is left of their sessions

SIGINT and SIGTERM set a flag while the supervisor is entered; `check`, called wherever it waits, turns the flag into
KeyboardInterrupt at a point where no child can be lost. Having handlers also keeps children from inheriting an
ignored SIGINT, which a shell gives to background jobs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Self, TypeAlias

from millrace.clock import Clock
from millrace.errors import PlatformError
from millrace_ops.supervisor.supervised import ChildProcess, Service, SupervisedChild, ended

POLL_INTERVAL_S = 0.05
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


class Supervisor:
    """The child processes of one platform; as a context manager, it stops them all at its end."""

    def __init__(
        self, log_dir: str, clock: Clock, on_ready: Callable[[str, int], None] = lambda _name, _took_ms: None
    ) -> None:
        """Prepares to write logs to `log_dir`; `on_ready` gets the name of each that is ready, and how long it took."""
        self._log_dir = log_dir
        self._clock = clock
        self._on_ready = on_ready
        self._groups: list[list[SupervisedChild]] = []
        self._former_handlers: dict[signal.Signals, Handler] = {}
        self._stop_requested = False

    def __enter__(self) -> Self:
        os.makedirs(self._log_dir, exist_ok=True)
        self._former_handlers = {number: signal.signal(number, self._request_stop) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.stop()
        finally:
            for number, handler in self._former_handlers.items():
                signal.signal(number, handler)

    def start(self, *services: Service, stop_together: bool = True) -> list[ChildProcess]:
        """Starts services at the same time, and returns their processes when all are ready.

        With `stop_together` they are stopped together, else the last one first. Raises PlatformError where one fails.
        """
        group: list[SupervisedChild] = []
        self._groups.append(group)
        started_ms = self._clock.monotonic_ms()
        for service in services:
            group.append(SupervisedChild(service, self._log_dir, self._clock))  # noqa: PERF401 -- stop() finds each
        for one in group:
            self._await_ready(one)
            self._on_ready(one.service.name, self._clock.monotonic_ms() - started_ms)
        if not stop_together:
            self._groups[-1:] = [[one] for one in group]
        return [one.child for one in group]

    def problem(self, name: str) -> str:
        """Returns how a service that was started again had ended; "" where it had not, or has run long enough since."""
        return next((one.problem for one in self._children() if one.service.name == name), "")

    def complete(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Runs a command to its end; raises PlatformError where its exit status is not 0."""
        child = ChildProcess(name, command, environment, os.path.join(self._log_dir, f"{name}.log"))
        try:
            while (status := child.exit_status()) is None:
                self.check()
                time.sleep(POLL_INTERVAL_S)
        finally:
            child.finish(0.0)
        if status:
            raise PlatformError(ended(child, status))

    def check(self) -> None:
        """Raises KeyboardInterrupt after a stop signal, and PlatformError when a child has ended, or restarts it."""
        if self._stop_requested:
            raise KeyboardInterrupt
        for one in self._children():
            one.look_after()

    def wait(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Waits until `check` raises something, and calls `meanwhile` again and again."""
        while True:
            self.check()
            meanwhile()
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> None:
        """Stops all children, the last started first; it can be called again.

        Children that stop together wait at the same time, each for its own stop timeout.
        """
        while self._groups:
            group = self._groups[-1]
            for one in group:
                one.child.terminate()
            terminated_ms = self._clock.monotonic_ms()
            for one in group:
                passed_s = (self._clock.monotonic_ms() - terminated_ms) / 1000
                one.child.finish(max(one.service.stop_timeout_s - passed_s, 0.0))
            self._groups.pop()

    def _await_ready(self, one: SupervisedChild) -> None:
        service = one.service
        deadline_ms = self._clock.monotonic_ms() + int(service.ready_timeout_s * 1000)
        while not one.is_ready():
            self.check()
            if self._clock.monotonic_ms() > deadline_ms:
                raise PlatformError(
                    f"{service.name} is not ready after {service.ready_timeout_s:g} s; "
                    f"the end of {one.child.log_path}:\n{one.child.log_tail()}"
                )
            time.sleep(POLL_INTERVAL_S)

    def _children(self) -> list[SupervisedChild]:
        return [one for group in self._groups for one in group]

    def _request_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_requested = True
