"""The families of metrics that collectors give: Prometheus' own, and large ones that are written as they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Literal, NamedTuple, Protocol, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from millrace_broker.metrics import Durations

LabelValues = TypeVar("LabelValues", bound=tuple[str, ...])


class LargeFamily(NamedTuple):
    """A family with very many samples. Its rows are the texts behind the name, such as `{topic="t"} 5`.

    Texts cost the garbage collector nothing; a container for each sample would have it look at all objects of the
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
    """What gives families; each time the values of that moment."""

    def collect(self) -> Iterable[Family | None]:
        """Returns the families; None stands where other work may have its turn."""
        ...


def gauge(name: str, text: str, value: float) -> Metric:
    """Returns a gauge without labels."""
    return GaugeMetricFamily(f"millrace_{name}", text, value=value)


def counter(name: str, text: str, value: float) -> Metric:
    """Returns a counter without labels."""
    return CounterMetricFamily(f"millrace_{name}", text, value=value)


def gauges(name: str, text: str, labels: list[str], values: Mapping[LabelValues, float]) -> Metric:
    """Returns a gauge with a value for each set of labels."""
    family = GaugeMetricFamily(f"millrace_{name}", text, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family


def counters(name: str, text: str, labels: list[str], values: Mapping[LabelValues, float]) -> Metric:
    """Returns a counter with a value for each set of labels."""
    family = CounterMetricFamily(f"millrace_{name}", text, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family


def histograms(name: str, text: str, labels: list[str], values: Mapping[LabelValues, Durations]) -> Metric:
    """Returns a histogram for each set of labels."""
    family = HistogramMetricFamily(f"millrace_{name}", text, labels=labels)
    for labelled, durations in values.items():
        family.add_metric(labelled, list(_cumulated(durations)), durations.sum_s)
    return family


def by_one_label(values: Counter[str]) -> dict[tuple[str, ...], int]:
    """Returns values by labels, of which there is one."""
    return {(label,): value for label, value in values.items()}


def escaped(value: str) -> str:
    """Returns the value of a label as it stands between quotation marks."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _cumulated(durations: Durations) -> Iterator[tuple[str, float]]:
    bounds = [*map(str, durations.bounds_s), "+Inf"]
    return zip(bounds, accumulate(durations.buckets), strict=True)
