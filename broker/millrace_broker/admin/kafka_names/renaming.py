"""Turns families of Millrace into those of Kafka behind its exporter; what Kafka does not have keeps its name.

millrace_topic_bytes_in_total{topic="weather"}       kafka_server_brokertopicmetrics_bytesin_total{topic="weather"}
                                                     kafka_server_brokertopicmetrics_bytesin_total, of all topics
millrace_request_total_seconds_bucket{api, le}, …    kafka_network_requestmetrics_totaltimems{request, quantile}
                                                     kafka_network_requestmetrics_totaltimems_count{request}
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from millrace_broker.admin.collectors.families import Family, LargeFamily
from millrace_broker.admin.kafka_names.quantiles import RecentBuckets, quantile
from millrace_broker.admin.kafka_names.table import TABLE, Row

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
INFINITE = "+Inf"

Labels = tuple[str, ...]
Grouped = dict[Labels, list[Sample]]


class KafkaNames:
    """Renames families; it remembers the histograms of a minute or two, for their quantiles."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._recent = RecentBuckets(now_s)
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        for row in TABLE:
            self._rows[f"millrace_{row.ours}"].append(row)

    def renamed(self, families: Iterable[Family | None]) -> Iterator[Family | None]:
        """Yields the families under Kafka's names."""
        for family in families:
            rows = None if family is None else self._rows.get(family.name)
            if family is None or rows is None:
                yield family
                continue
            for row in rows:
                yield from self._as_kafkas(row, family)

    def _as_kafkas(self, row: Row, family: Family) -> Iterator[Family]:
        if isinstance(family, LargeFamily):
            yield family._replace(name=row.name, rows=_rows_of(row, family))
        elif family.type == "histogram":
            yield from self._summary(row, family)
        else:
            yield _sums(row, family)

    def _summary(self, row: Row, family: Metric) -> Iterator[Metric]:
        times = GaugeMetricFamily(row.name, family.documentation, labels=[*row.labels, "quantile"])
        counts = Metric(f"{row.name}_count", family.documentation, "unknown")
        for values, samples in _grouped(row, family).items():
            at_most: defaultdict[str, float] = defaultdict(float)
            for one in samples:
                if "le" in one.labels:
                    at_most[one.labels["le"]] += one.value
            cumulated = [*at_most.values()]
            bounds = [float(bound) for bound in at_most if bound != INFINITE]
            buckets = tuple(upper - lower for lower, upper in pairwise([0.0, *cumulated]))
            recent = self._recent.since((row.name, values), buckets)
            for share in QUANTILES:
                times.add_metric([*values, share], 1000 * quantile(bounds, recent, float(share)))
            counts.add_sample(counts.name, dict(zip(row.labels, values, strict=True)), at_most[INFINITE])
        yield times
        yield counts


def _rows_of(row: Row, family: LargeFamily) -> Iterator[str]:
    """Yields the rows with Kafka's labels, and before them the sum of all, as Kafka does, where it is known."""
    first, ours = next(iter(row.labels.items()))
    if family.total is not None:
        yield f" {family.total}"
    for text in family.rows:
        yield text.replace(f"{{{ours}=", f"{{{first}=", 1)


def _sums(row: Row, family: Metric) -> Metric:
    names = [*row.constants, *row.labels]
    new = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
    sums: Metric = new(row.name, family.documentation, labels=names)
    for values, samples in _grouped(row, family).items():
        suffix = "_total" if family.type == "counter" else ""
        labels = dict(zip(names, (*row.constants.values(), *values), strict=True))
        sums.add_sample(f"{row.name}{suffix}", labels, sum(one.value for one in samples))
    return sums


def _grouped(row: Row, family: Metric) -> Grouped:
    """Returns the samples that count, by the values of Kafka's labels."""
    grouped: Grouped = defaultdict(list)
    for one in family.samples:
        if row.only in ("", one.labels.get("api")):
            grouped[tuple(_value(ours, one.labels) for ours in row.labels.values())].append(one)
    return grouped


def _value(label: str, labels: Mapping[str, str]) -> str:
    """Returns the value of a label; APIs are called as in Kafka, ListOffsets for list_offsets."""
    value = labels[label]
    return value.title().replace("_", "") if label == "api" else value
