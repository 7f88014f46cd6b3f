"""Apache Kafka's command-line tools by their names, for the brokers at an address.

tools = KafkaTools(find_kafka("3.9"), broker.bootstrap)
assert "PartitionCount: 2" in tools.run("kafka-topics", "--describe", "--topic", "t")
"""

from dataclasses import dataclass

from millrace.testing.kafka import Kafka

MAIN_CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
}


@dataclass(frozen=True)
class KafkaTools:
    """The tools of one version of Kafka, for the brokers at `bootstrap`."""

    kafka: Kafka
    bootstrap: str

    def run(self, tool: str, *arguments: str) -> str:
        """Runs a tool, `kafka-topics` for instance, and returns what it prints; SetupError where it fails."""
        return self.kafka.run(MAIN_CLASSES[tool], "--bootstrap-server", self.bootstrap, *arguments)
