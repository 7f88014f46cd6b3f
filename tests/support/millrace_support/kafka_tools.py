"""Apache Kafka's command-line tools by their names, for the brokers at an address.

tools = KafkaTools(find_kafka("3.9"), broker.bootstrap)
assert "PartitionCount: 2" in tools.run("kafka-topics", "--describe", "--topic", "t")

Some give up within seconds if they are not told otherwise, which is less than a busy machine may need.
"""

from dataclasses import dataclass
from pathlib import Path

from millrace_benchmarks.kafka_broker import Kafka

MAIN_CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
OF_3_9 = {
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
}
PATIENT_GROUPS = ("--timeout", "120000")  # of kafka-consumer-groups, instead of 5 s
PATIENT_PRODUCER = ("--request-timeout-ms", "60000")  # of kafka-console-producer, instead of 1.5 s


def main_class(kafka: Kafka, tool: str) -> str:
    """Returns the main class of a tool in one version of Kafka."""
    is_old = any(kafka.libs.glob("kafka-clients-3.9.*"))
    return {**MAIN_CLASSES, **(OF_3_9 if is_old else {})}[tool]


def patient_versions(folder: Path) -> tuple[str, str]:
    """Returns the option that lets kafka-broker-api-versions wait longer than 5 s, with its new file."""
    file = folder / "patient.properties"
    file.write_text("request.timeout.ms=60000\n")
    return "--command-config", str(file)


@dataclass(frozen=True)
class KafkaTools:
    """The tools of one version of Kafka, for the brokers at `bootstrap`."""

    kafka: Kafka
    bootstrap: str

    def run(self, tool: str, *arguments: str) -> str:
        """Runs a tool, `kafka-topics` for instance, and returns what it prints; raises SetupError where it fails."""
        return self.kafka.run(main_class(self.kafka, tool), "--bootstrap-server", self.bootstrap, *arguments)
