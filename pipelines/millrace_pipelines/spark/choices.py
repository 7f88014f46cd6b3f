"""What a reader of a topic chooses; the module imports nothing, so that the command line starts fast."""

from enum import StrEnum


class Isolation(StrEnum):
    """The isolation of a read: records of open and aborted transactions are left out (READ_COMMITTED), or not."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Reader(StrEnum):
    """The client that fetches and decodes records: Millrace's own in the task, or Spark's Kafka connector in a JVM."""

    MILLRACE = "millrace"
    SPARK_KAFKA = "spark-kafka"
