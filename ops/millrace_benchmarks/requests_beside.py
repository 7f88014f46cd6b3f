"""Produce requests one at a time, alone and beside other work: what that work adds to the time of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from millrace_benchmarks import raw
from millrace_benchmarks.harness import Samples
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Subject

VALUE_BYTES = 100
REQUESTS = 20_000


def requests_alone(broker: Subject, topic: str) -> Samples:
    """Measures requests of one record, with one in flight: the time of one, and the broker's processor time for it."""
    frame = raw.produce_frame(topic, 0, text(VALUE_BYTES))
    result = raw.produce(broker, topic, [frame], requests=REQUESTS)
    return result.samples | {"p50_ms": result.p50_us / 1000, "p999_ms": result.p999_us / 1000}


def requests_beside(broker: Subject, topic: str, work: Callable[[], object]) -> Samples:
    """Measures the same, while the work is done again and again."""
    with _repeating(work):
        return requests_alone(broker, topic)


@contextmanager
def _repeating(work: Callable[[], object]) -> Iterator[None]:
    """Does the work without a pause until the block ends; raises its error then, as nothing was measured beside it."""
    stopped = Event()

    def repeat() -> None:
        while not stopped.is_set():
            work()

    with ThreadPoolExecutor(1, thread_name_prefix="beside") as thread:
        repeated = thread.submit(repeat)
        try:
            yield
        finally:
            stopped.set()
        repeated.result()
