"""Apache Kafka's command-line tools by their names, for the brokers at an address.

tools = KafkaTools(find_kafka("3.9"), broker.bootstrap)
assert "PartitionCount: 2" in tools.run("kafka-topics", "--describe", "--topic", "t")

Some give up within seconds if they are not told otherwise, which is less than a busy machine may need.
"""

from dataclasses import dataclass
from pathlib import Path

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
PATIENT_GROUPS = ("--timeout", "120000")  # of kafka-consumer-groups, instead of 5 s
PATIENT_PRODUCER = ("--request-timeout-ms", "60000")  # of kafka-console-producer, instead of 1.5 s


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
        """Runs a tool, `kafka-topics` for instance, and returns what it prints; SetupError where it fails."""
        return self.kafka.run(MAIN_CLASSES[tool], "--bootstrap-server", self.bootstrap, *arguments)
