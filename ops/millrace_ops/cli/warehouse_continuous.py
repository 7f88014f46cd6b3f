"""`millrace warehouse load --continuous`: loads in a loop, which a signal ends after the running load."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from types import FrameType

import typer

from millrace.addresses import Address, parse_listen_address
from millrace.errors import InvalidConfigError, SetupError
from millrace.tracing import tracing_of
from millrace_ops.cli.output import print_json
from millrace_pipelines.spark.session import spark_session
from millrace_pipelines.warehouse.load.continuous import ContinuousListener, Failure, load_continuously
from millrace_pipelines.warehouse.load.load import SERVICE, load_topic
from millrace_pipelines.warehouse.load.metrics import LoadMetrics
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """The pause in seconds after a load that left nothing, where to serve metrics, and the form of reports."""

    interval_s: float
    metrics: str | None
    as_json: bool


def run_continuously(options: LoadOptions, loop: LoopOptions) -> None:
    """Loads again and again until SIGTERM or SIGINT; a second signal ends the process at once."""
    stop = threading.Event()
    listeners: list[ContinuousListener] = [_Lines(loop.as_json)]
    if loop.metrics is not None:
        metrics = LoadMetrics()
        host, port = _address(loop.metrics)
        try:
            served = Address(host, metrics.serve(host, port))
        except OSError as error:
            raise SetupError(f"--metrics {loop.metrics}: {error.strerror or error}") from error
        print(f"metrics at http://{served}/metrics", file=sys.stderr, flush=True)
        listeners.append(metrics)
    with (
        tracing_of(os.environ, SERVICE) as tracing,
        spark_session(f"load {options.topic}", options.master, options.spark_settings) as spark,
    ):
        stop_on_signals(stop.set)
        print(f"loading {options.topic} into {options.table} until SIGTERM", file=sys.stderr, flush=True)
        load = partial(load_topic, options, spark=spark, tracing=tracing)
        load_continuously(load, stop, _All(listeners), interval_s=loop.interval_s)


def _address(text: str) -> Address:
    """Parses the `HOST:PORT` at which metrics are served; port 0 takes a free one."""
    try:
        return parse_listen_address(text)
    except InvalidConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--metrics") from None


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Calls `stop` at the first signal, and restores the default action for the next one."""

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop()

    for number in STOP_SIGNALS:
        signal.signal(number, handle)


class _All:
    """Passes each event of a loop of loads on to several listeners."""

    def __init__(self, listeners: Sequence[ContinuousListener]) -> None:
        self._listeners = listeners

    def loaded(self, report: LoadReport) -> None:
        """Passes the report of a load on to each listener."""
        for listener in self._listeners:
            listener.loaded(report)

    def failed(self, failure: Failure) -> None:
        """Passes a failed load on to each listener."""
        for listener in self._listeners:
            listener.failed(failure)


class _Lines:
    """Writes a line to stdout for each load that committed something; failures go to stderr."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def loaded(self, report: LoadReport) -> None:
        """Writes a load's version, rows, dead letters, time and lag, or its report as JSON; nothing for no commit."""
        if report.version is None:
            return
        if self._as_json:
            print_json(asdict(report))
        else:
            print(
                f"version {report.version}: {report.rows:,} rows, {report.dead_letters:,} dead letters, "
                f"{report.seconds:.2f} s, lag {sum(report.lag.values()):,}"
            )
        sys.stdout.flush()

    def failed(self, failure: Failure) -> None:
        """Writes the error to stderr, with the number of the attempt and the pause before the next one."""
        text = f"attempt {failure.attempt} failed, again in {failure.pause_s:.1f} s: {failure.error}"
        print(text, file=sys.stderr, flush=True)
