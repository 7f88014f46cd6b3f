"""Which metric of Millrace is which MBean of Apache Kafka, and what Prometheus' JMX exporter calls that.

    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=*
        kafka_server_brokertopicmetrics_bytesin_total{topic}
    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=*
        kafka_network_requestmetrics_totaltimems{request,quantile}
        kafka_network_requestmetrics_totaltimems_count{request}

The names follow the rules of the exporter's own example for Kafka (example_configs/kafka-2_0_0.yml), which most
dashboards expect: domain, type and name in small letters, without `PerSec`; the other keys are labels. Kafka has no
metrics of a group's lag; dashboards take these from the exporter `kafka_exporter`, and have its names here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

KEY = re.compile(r"(\w+)=([^,}]+)")


class Row(NamedTuple):
    """A family of Millrace, without `millrace_`, and what it is in Kafka: an MBean, or else a name of `kafka_exporter`.

    A key `=*` of the MBean is one of the family's labels; samples that differ in other labels are added up. With `only`
    those alone count that have this value in the label `api`.
    """

    ours: str
    theirs: str
    only: str = ""

    @property
    def name(self) -> str:
        """The exporter's name, without `_total`."""
        if ":" not in self.theirs:
            return self.theirs.partition("{")[0]
        domain, _, keys = self.theirs.partition(":")
        named = dict(KEY.findall(keys))
        return f"{domain}_{named['type']}_{named['name'].removesuffix('PerSec')}".replace(".", "_").lower()

    @property
    def labels(self) -> Mapping[str, str]:
        """Kafka's labels, each with the label of Millrace that it has its values from."""
        return {theirs: LABELS.get(theirs, theirs) for theirs, value in KEY.findall(self.theirs) if value == "*"}

    @property
    def constants(self) -> Mapping[str, str]:
        """Labels that have always the same value."""
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
