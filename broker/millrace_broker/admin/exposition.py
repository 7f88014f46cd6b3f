"""Writes families of metrics in Prometheus' text format, a piece at a time.

    families → exposition → pieces, a millisecond of work or less each → in_slices → the body of the answer

The broker's only thread would keep requests waiting while it writes ten thousand partitions, and another thread would
take the interpreter from it for 5 ms at each system call. So the event loop writes them itself and handles requests in
between. The library's own writing takes about 5 µs a sample, so it has the small families.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from millrace.clock import Clock
from millrace_broker.admin.collectors.families import Family, LargeFamily

ROWS_AT_ONCE = 200
SLICE_S = 0.001


class _Only(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def exposition(families: Iterable[Family | None]) -> Iterator[bytes]:
    """Yields the text of the families in their order, and none where there is None."""
    for family in families:
        if family is None:
            yield b""
        elif isinstance(family, LargeFamily):
            yield from _large(family)
        else:
            yield generate_latest(_Only(family))


async def in_slices(pieces: Iterable[bytes], clock: Clock) -> bytes:
    """Returns the pieces as one; whatever waits for the event loop gets its turn every millisecond."""
    gathered: list[bytes] = []
    until_s = clock.monotonic_s() + SLICE_S
    for piece in pieces:
        gathered.append(piece)
        if clock.monotonic_s() >= until_s:
            await asyncio.sleep(0)
            until_s = clock.monotonic_s() + SLICE_S
    return b"".join(gathered)


def _large(family: LargeFamily) -> Iterator[bytes]:
    name = f"{family.name}_total" if family.kind == "counter" else family.name
    yield f"# HELP {name} {family.documentation}\n# TYPE {name} {family.kind}\n".encode()
    rows = iter(family.rows)
    while portion := list(islice(rows, ROWS_AT_ONCE)):
        yield "".join([f"{name}{row}\n" for row in portion]).encode()
