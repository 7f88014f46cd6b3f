"""`python -m millrace_broker`: the broker process.

It prints one line to stdout, `listening HOST:PORT`, as soon as it serves; the log goes to stderr. SIGTERM and SIGINT
drain the broker, and the exit status is 0. A start that fails prints one line that says why, and the exit status is 1,
or 2 where the command line is wrong.
Where systemd has started the process, it is told when the broker serves, that it lives, and when it stops.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from millrace.clock import SystemClock
from millrace.errors import MalformedValueError, MillraceError
from millrace.extras import require
from millrace.service_manager import ServiceManager
from millrace.tracing import Tracing, tracing_of
from millrace_broker.log_lines import output
from millrace_broker.startup.options import BrokerOptions, parse_options

if TYPE_CHECKING:
    from millrace_broker.broker import Broker

logger = logging.getLogger("millrace_broker")

SERVICE = "millrace-broker"
THREAD_TURN_S = 0.000_5  # for so long at most a worker at work keeps the event loop waiting; the interpreter's is 5 ms


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the broker until a signal stops it; returns the exit status: 0, or 1 or 2 where it could not start."""
    to_stderr = output.write_to(sys.stderr)
    _raise_file_limit()
    sys.setswitchinterval(THREAD_TURN_S)
    manager = ServiceManager.taken_from(os.environ, os.getpid())
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
        require("the broker", "broker")
        output.use_format(to_stderr, options.broker.logging_format)
        with tracing_of(os.environ, SERVICE) as tracing:
            asyncio.run(_run(options, manager, tracing))
    except MillraceError as error:
        print(f"millrace broker: {error}", file=sys.stderr)  # noqa: T201
        return 2 if isinstance(error, MalformedValueError) else 1
    return 0


def _raise_file_limit() -> None:
    # The more descriptors storage may keep open, the fewer files it opens again; the usual soft limit is 1024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run(options: BrokerOptions, manager: ServiceManager, tracing: Tracing | None) -> None:
    from millrace_broker.broker import Broker  # noqa: PLC0415  # needs the packages of the extra

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(options, SystemClock(), tracing)
    try:
        address = await broker.start()
        print(f"listening {address}", flush=True)  # noqa: T201  # the parent process waits for it
        await broker.start_admin()
        manager.ready(f"listening at {address}")
        with broker.cycles.frozen():
            await _wait(stop, broker, manager)
        manager.stopping()
        logger.info("stopping")
    finally:
        await broker.stop()


async def _wait(stop: asyncio.Event, broker: Broker, manager: ServiceManager) -> None:
    """Waits until `stop` is set; meanwhile tells systemd that the broker is live, as often as its watchdog needs it."""
    pause_s = None if manager.watchdog_ms is None else manager.watchdog_ms / 1000
    while not stop.is_set():
        if pause_s is not None and await broker.is_live():
            manager.alive()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)


if __name__ == "__main__":
    sys.exit(main())
