"""Gives metrics the names that they have in Apache Kafka, behind Prometheus' JMX exporter (docs/metrics.md).

    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=*
        millrace_topic_bytes_in_total{topic="weather"}
        kafka_server_brokertopicmetrics_bytesin_total{topic="weather"}
        kafka_server_brokertopicmetrics_bytesin_total                       of all topics
    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=*
        millrace_request_total_seconds_bucket{api, le}, …
        kafka_network_requestmetrics_totaltimems{request, quantile}
        kafka_network_requestmetrics_totaltimems_count{request}

The names follow the rules of the exporter's own example for Kafka (example_configs/kafka-2_0_0.yml), which most
dashboards expect: domain, type and name in small letters, without `PerSec`; the other keys are labels. Kafka has no
metrics of a group's lag; dashboards take these from the exporter `kafka_exporter`, and have its names here. What Kafka
does not have keeps its name.

Quantiles are those of the last minute or two; Kafka's fade out older durations, too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import sub
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from millrace_broker.admin.collectors.families import Family, LargeFamily

KEY = re.compile(r"(\w+)=([^,}]+)")
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
INFINITE = "+Inf"

Labels = tuple[str, ...]
Grouped = dict[Labels, list[Sample]]
WINDOW_S = 60.0


class Row(NamedTuple):
    """A metric of Millrace, without `millrace_`, and its name in Kafka: an MBean, or else a name of `kafka_exporter`.

    A key `=*` of the MBean is a label of the metric; samples that differ in other labels are added up. With `only`,
    just the samples whose label `api` has this value count.
    """

    ours: str
    theirs: str
    only: str = ""

    @property
    def name(self) -> str:
        """Returns the JMX exporter's name for it, like `kafka_server_replicamanager_leadercount`, without `_total`."""
        if ":" not in self.theirs:
            return self.theirs.partition("{")[0]
        domain, _, keys = self.theirs.partition(":")
        named = dict(KEY.findall(keys))
        return f"{domain}_{named['type']}_{named['name'].removesuffix('PerSec')}".replace(".", "_").lower()

    @property
    def labels(self) -> Mapping[str, str]:
        """Returns, for each label in Kafka, the label in Millrace that has its values."""
        return {theirs: LABELS.get(theirs, theirs) for theirs, value in KEY.findall(self.theirs) if value == "*"}

    @property
    def constants(self) -> Mapping[str, str]:
        """Returns the MBean's keys with a fixed value, other than type and name, as labels of all samples."""
        named = KEY.findall(self.theirs)
        return {key: value for key, value in named if key not in ("type", "name") and value != "*"}


LABELS = {"request": "api", "consumergroup": "group"}
REQUESTS = "kafka.network:type=RequestMetrics"
TOPICS = "kafka.server:type=BrokerTopicMetrics"
LOGS = "kafka.log:type=Log"
REPLICAS = "kafka.server:type=ReplicaManager"
CONTROLLER = "kafka.controller:type=KafkaController"
GROUPS = "kafka.coordinator.group:type=GroupMetadataManager"
PARTITION = "topic=*,partition=*"

TABLE = (
    Row("topic_records_in", f"{TOPICS},name=MessagesInPerSec,topic=*"),
    Row("topic_bytes_in", f"{TOPICS},name=BytesInPerSec,topic=*"),
    Row("topic_bytes_out", f"{TOPICS},name=BytesOutPerSec,topic=*"),
    Row("topic_replicated_bytes_in", f"{TOPICS},name=ReplicationBytesInPerSec,topic=*"),
    Row("topic_replicated_bytes_out", f"{TOPICS},name=ReplicationBytesOutPerSec,topic=*"),
    Row("requests", f"{TOPICS},name=TotalProduceRequestsPerSec", only="produce"),
    Row("requests", f"{TOPICS},name=TotalFetchRequestsPerSec", only="fetch"),
    Row("requests", f"{REQUESTS},name=RequestsPerSec,request=*"),
    Row("request_errors", f"{REQUESTS},name=ErrorsPerSec,request=*,error=*"),
    Row("request_queue_seconds", f"{REQUESTS},name=RequestQueueTimeMs,request=*"),
    Row("request_local_seconds", f"{REQUESTS},name=LocalTimeMs,request=*"),
    Row("request_remote_seconds", f"{REQUESTS},name=RemoteTimeMs,request=*"),
    Row("request_send_seconds", f"{REQUESTS},name=ResponseSendTimeMs,request=*"),
    Row("request_total_seconds", f"{REQUESTS},name=TotalTimeMs,request=*"),
    Row("log_start_offset", f"{LOGS},name=LogStartOffset,{PARTITION}"),
    Row("log_end_offset", f"{LOGS},name=LogEndOffset,{PARTITION}"),
    Row("log_size_bytes", f"{LOGS},name=Size,{PARTITION}"),
    Row("last_stable_offset_lag", f"kafka.cluster:type=Partition,name=LastStableOffsetLag,{PARTITION}"),
    Row("log_flush_seconds", "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"),
    Row("offline_log_directory_count", "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"),
    Row("leader_count", f"{REPLICAS},name=LeaderCount"),
    Row("partition_count", f"{REPLICAS},name=PartitionCount"),
    Row("under_replicated_partitions", f"{REPLICAS},name=UnderReplicatedPartitions"),
    Row("under_min_isr_partition_count", f"{REPLICAS},name=UnderMinIsrPartitionCount"),
    Row("at_min_isr_partition_count", f"{REPLICAS},name=AtMinIsrPartitionCount"),
    Row("offline_replica_count", f"{REPLICAS},name=OfflineReplicaCount"),
    Row("isr_shrinks", f"{REPLICAS},name=IsrShrinksPerSec"),
    Row("isr_expands", f"{REPLICAS},name=IsrExpandsPerSec"),
    Row("failed_isr_updates", f"{REPLICAS},name=FailedIsrUpdatesPerSec"),
    Row("replica_fetcher_max_lag", "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica"),
    Row("active_controller_count", f"{CONTROLLER},name=ActiveControllerCount"),
    Row("active_broker_count", f"{CONTROLLER},name=ActiveBrokerCount"),
    Row("global_topic_count", f"{CONTROLLER},name=GlobalTopicCount"),
    Row("global_partition_count", f"{CONTROLLER},name=GlobalPartitionCount"),
    Row("offline_partitions_count", f"{CONTROLLER},name=OfflinePartitionsCount"),
    Row("preferred_replica_imbalance_count", f"{CONTROLLER},name=PreferredReplicaImbalanceCount"),
    Row("unclean_leader_elections", "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec"),
    Row("groups", f"{GROUPS},name=NumGroups"),
    Row("group_offsets", f"{GROUPS},name=NumOffsets"),
    Row("group_offset", f"kafka_consumergroup_current_offset{{consumergroup=*,{PARTITION}}}"),
    Row("group_lag", f"kafka_consumergroup_lag{{consumergroup=*,{PARTITION}}}"),
)


class KafkaNames:
    """Renames metric families to Kafka's names, and computes quantiles of a histogram's last minute or two."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._recent = RecentBuckets(now_s)
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        for row in TABLE:
            self._rows[f"millrace_{row.ours}"].append(row)

    def renamed(self, families: Iterable[Family | None]) -> Iterator[Family | None]:
        """Yields the families under Kafka's names; families that Kafka lacks, and None, stay as they are."""
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
    """Yields a family's rows with Kafka's label in place of ours; first the total without labels, if it has one."""
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
    """Returns the samples that `row` renames, grouped by the values of Kafka's labels."""
    grouped: Grouped = defaultdict(list)
    for one in family.samples:
        if row.only in ("", one.labels.get("api")):
            grouped[tuple(_value(ours, one.labels) for ours in row.labels.values())].append(one)
    return grouped


def _value(label: str, labels: Mapping[str, str]) -> str:
    """Returns the value of a sample's label, with APIs by Kafka's names: ListOffsets for list_offsets."""
    value = labels[label]
    return value.title().replace("_", "") if label == "api" else value


def quantile(bounds: Sequence[float], buckets: Sequence[float], share: float) -> float:
    """Returns the duration below which the share of durations in a histogram's `buckets` lies; 0 without durations.

    Durations count as evenly spread in their bucket. Of the last, which has no upper bound, the lower one is returned.
    """
    wanted, before = share * sum(buckets), 0.0
    for (lower, upper), count in zip(pairwise((0.0, *bounds)), buckets, strict=False):
        if count and before + count >= wanted:
            return lower + (upper - lower) * (wanted - before) / count
        before += count
    return bounds[-1] if wanted else 0.0


class RecentBuckets:
    """Tells how much a histogram's buckets have grown since a look one to two minutes ago, or since the first."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._looks: dict[Hashable, tuple[float, Sequence[float], Sequence[float]]] = {}

    def since(self, key: Hashable, buckets: Sequence[float]) -> Sequence[float]:
        """Keeps the present buckets of the histogram `key`; returns by how much each has grown since the older look."""
        now_s, nothing = self._now_s(), (0.0,) * len(buckets)
        looked_s, older, newer = self._looks.get(key, (now_s, nothing, nothing))
        recent = tuple(map(sub, buckets, older))
        if key not in self._looks or now_s - looked_s >= WINDOW_S:
            self._looks[key] = now_s, newer, buckets
        return recent
