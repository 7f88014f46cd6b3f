"""Apache Kafka's command-line tools in one JVM, one after another: each starts in a fraction of a second.

with KafkaTools(find_kafka("3.9"), broker.bootstrap) as tools:
    assert "PartitionCount: 2" in tools.run("topics", "--describe", "--topic", "t")
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from millrace.errors import SetupError
from millrace.testing.kafka import Kafka

PROGRAM = Path(__file__).with_name("KafkaTools.java")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
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


class KafkaTools:
    """The tools of one version of Kafka, for the brokers at `bootstrap`."""

    def __init__(self, kafka: Kafka, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._process = subprocess.Popen(
            kafka.command(str(PROGRAM), flags=(QUIET,)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()  # the end of its stdin ends the JVM
        self._process.wait()

    def run(self, tool: str, *arguments: str) -> str:
        """Runs a tool, `kafka-topics` for instance, and returns what it prints; SetupError where it fails."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        words = (MAIN_CLASSES[tool], "--bootstrap-server", self._bootstrap, *arguments)
        stdin.write("\t".join(words).encode() + b"\n")
        stdin.flush()
        answer = stdout.readline().split()
        if not answer:
            raise SetupError("the JVM of Kafka's tools has ended")
        status, size = map(int, answer)
        printed = stdout.read(size).decode()
        if status:
            raise SetupError(f"{tool} ends with {status}:\n{printed}")
        return printed
