"""The families of metrics that collectors give: Prometheus' own, and large ones that are written as they are made.

    families → exposition → pieces, a millisecond of work or less each → in_slices → the body of the answer

The broker's only thread would keep requests waiting while it writes ten thousand partitions, and another thread would
take the interpreter from it for 5 ms at each system call. So the event loop writes them itself, in Prometheus' text
format, and handles requests in between. The library's own writing takes about 5 µs a sample, so it has the small
families.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, islice
from typing import Literal, NamedTuple, Protocol, TypeVar

from prometheus_client import generate_latest, registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from millrace.clock import Clock
from millrace_broker.metrics import Durations

LabelValues = TypeVar("LabelValues", bound=tuple[str, ...])
ROWS_AT_ONCE = 200
SLICE_S = 0.001


class LargeFamily(NamedTuple):
    """A metric family with very many samples; `rows` has the text of each behind the name, such as `{topic="t"} 5`.

    Texts cost the garbage collector nothing; with an object for each sample it would have to look at all objects of the
    broker again and again. As in Prometheus' own families the name is without `_total`. Where rows come and go, `total`
    is the sum of all that they have ever counted.
    """

    name: str
    documentation: str
    kind: Literal["counter", "gauge"]
    rows: Iterable[str]
    total: float | None = None


Family = Metric | LargeFamily


class Collector(Protocol):
    """A source of metric families, whose values are read at each call of `collect`."""

    def collect(self) -> Iterable[Family | None]:
        """Returns the metric families; a None between them lets other work of the event loop run."""
        ...


def gauge(name: str, text: str, value: float) -> Metric:
    """Returns a gauge without labels, named `millrace_` and `name`; `text` is its help."""
    return GaugeMetricFamily(f"millrace_{name}", text, value=value)


def counter(name: str, text: str, value: float) -> Metric:
    """Returns a counter without labels, named `millrace_` and `name`; `text` is its help."""
    return CounterMetricFamily(f"millrace_{name}", text, value=value)


def gauges(name: str, text: str, labels: list[str], values: Mapping[LabelValues, float]) -> Metric:
    """Returns a gauge with a value for each tuple of label values, in the order of `labels`."""
    family = GaugeMetricFamily(f"millrace_{name}", text, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family


def counters(name: str, text: str, labels: list[str], values: Mapping[LabelValues, float]) -> Metric:
    """Returns a counter with a value for each tuple of label values, in the order of `labels`."""
    family = CounterMetricFamily(f"millrace_{name}", text, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family


def histograms(name: str, text: str, labels: list[str], values: Mapping[LabelValues, Durations]) -> Metric:
    """Returns a histogram in seconds for each tuple of label values, in the order of `labels`."""
    family = HistogramMetricFamily(f"millrace_{name}", text, labels=labels)
    for labelled, durations in values.items():
        family.add_metric(labelled, list(_cumulated(durations)), durations.sum_s)
    return family


def by_one_label(values: Counter[str]) -> dict[tuple[str, ...], int]:
    """Returns the counts by 1-tuples of the label value, as `counters` takes them."""
    return {(label,): value for label, value in values.items()}


def escaped(value: str) -> str:
    """Returns a label's value for Prometheus' text format, with backslash, quotation mark and line end escaped."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _cumulated(durations: Durations) -> Iterator[tuple[str, float]]:
    bounds = [*map(str, durations.bounds_s), "+Inf"]
    return zip(bounds, accumulate(durations.buckets), strict=True)


class _Only(registry.Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def exposition(families: Iterable[Family | None]) -> Iterator[bytes]:
    """Yields the families in Prometheus' text format, in pieces; an empty piece for each None among them."""
    for family in families:
        if family is None:
            yield b""
        elif isinstance(family, LargeFamily):
            yield from _large(family)
        else:
            yield generate_latest(_Only(family))


async def in_slices(pieces: Iterable[bytes], clock: Clock) -> bytes:
    """Returns the pieces joined; after each millisecond of work the event loop may handle other events."""
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
