"""Child processes started in order, watched, and stopped in reverse order.

    start(a)      a runs until its probe says ready     ┐
    complete(x)   x runs to its end                     │
    start(b, c)   b and c start together                │  a child that ends by itself: PlatformError names it,
    wait()        returns only by an exception          ┘  its status and its last log lines
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
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Self, TypeAlias

from millrace.clock import Clock
from millrace.errors import PlatformError
from millrace_ops.platform.process import ChildProcess

POLL_INTERVAL_S = 0.05
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A command, and how to see that it is ready."""

    name: str
    command: tuple[str, ...]
    is_ready: Callable[[ChildProcess], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 120.0
    stop_timeout_s: float = 20.0


class Supervisor:
    """The child processes of one platform; as a context manager, it stops them all at its end."""

    def __init__(self, log_dir: str, clock: Clock) -> None:
        os.makedirs(log_dir, exist_ok=True)
        self._log_dir = log_dir
        self._clock = clock
        self._groups: list[list[tuple[Service, ChildProcess]]] = []
        self._former_handlers: dict[signal.Signals, Handler] = {}
        self._stop_requested = False

    def __enter__(self) -> Self:
        self._former_handlers = {number: signal.signal(number, self._request_stop) for number in STOP_SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            for number, handler in self._former_handlers.items():
                signal.signal(number, handler)

    def start(self, *services: Service) -> list[ChildProcess]:
        """Starts services together and returns when all are ready; PlatformError where one does not get ready."""
        group: list[tuple[Service, ChildProcess]] = []
        self._groups.append(group)
        for service in services:
            log_path = os.path.join(self._log_dir, f"{service.name}.log")
            group.append((service, ChildProcess(service.name, service.command, service.environment, log_path)))
        for service, child in group:
            self._await_ready(service, child)
        return [child for _, child in group]

    def complete(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Runs a command to its end; PlatformError where that is no success."""
        child = ChildProcess(name, command, environment, os.path.join(self._log_dir, f"{name}.log"))
        try:
            while (status := child.exit_status()) is None:
                self.check()
                time.sleep(POLL_INTERVAL_S)
        finally:
            child.finish(0.0)
        if status:
            raise PlatformError(_ended(child, status))

    def check(self) -> None:
        """Raises KeyboardInterrupt after a stop signal, and PlatformError when a child has ended."""
        if self._stop_requested:
            raise KeyboardInterrupt
        for child in self._children():
            status = child.exit_status()
            if status is not None:
                raise PlatformError(_ended(child, status))

    def wait(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Waits until `check` raises something, and calls `meanwhile` again and again."""
        while True:
            self.check()
            meanwhile()
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> None:
        """Stops all children, the last started first; it can be called again."""
        while self._groups:
            group = self._groups[-1]
            for _, child in group:
                child.terminate()
            for service, child in group:
                child.finish(service.stop_timeout_s)
            self._groups.pop()

    def _await_ready(self, service: Service, child: ChildProcess) -> None:
        deadline_ms = self._clock.monotonic_ms() + int(service.ready_timeout_s * 1000)
        while not service.is_ready(child):
            self.check()
            if self._clock.monotonic_ms() > deadline_ms:
                raise PlatformError(
                    f"{child.name} is not ready after {service.ready_timeout_s:g} s; "
                    f"the end of {child.log_path}:\n{child.log_tail()}"
                )
            time.sleep(POLL_INTERVAL_S)

    def _children(self) -> list[ChildProcess]:
        return [child for group in self._groups for _, child in group]

    def _request_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_requested = True


def _ended(child: ChildProcess, status: int) -> str:
    return f"{child.name} {_describe_exit(status)}; the end of {child.log_path}:\n{child.log_tail()}"


def _describe_exit(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
